"""Settings: the fields of a method's configuration from texts such as ``optimiser.learning_rate=0.01``."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sfumato.errors import ArgumentError
from sfumato.synthesizers import Synthesizer, method_named

_FLAGS = {"true": True, "false": False}


def configured(method: str, settings: Sequence[str]) -> Synthesizer:
    """The method of that name with settings in place of its defaults.

    >>> configured("maf", ["steps=5", "batch=none", "optimiser.learning_rate=0.1"]).optimiser.learning_rate
    0.1
    >>> configured("merf", ["label=income"]).label
    'income'
    """
    default = method_named(method)()
    known = setting_names(default)
    texts: dict[str, str] = {}
    for setting in settings:
        name, sign, text = setting.partition("=")
        name = name.strip()
        if not sign:
            raise ArgumentError(f"Expected --set name=value, found {setting!r}.")
        if name not in known:
            near = [other for other in known if other.rpartition(".")[2] == name.rpartition(".")[2]]
            said = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known)}."
            raise ArgumentError(f"Unknown setting {name!r} of {method}; {said}")
        if name in texts:
            raise ArgumentError(f"The setting {name!r} is given twice.")
        texts[name] = text.strip()
    return _filled(default, texts, "")


def setting_names(config: Any, prefix: str = "") -> list[str]:
    """Every field of a configuration and of those inside it, by its dotted name."""
    names = []
    for field in fields(config):
        inner = _inner(get_type_hints(type(config))[field.name])
        names.append(f"{prefix}{field.name}")
        names += setting_names(inner(), f"{prefix}{field.name}.") if inner else []
    return names


def _filled(config: Any, texts: dict[str, str], prefix: str) -> Any:
    changes: dict[str, Any] = {}
    hints = get_type_hints(type(config))
    for field in fields(config):
        name = f"{prefix}{field.name}"
        value = getattr(config, field.name)
        if name in texts:
            value = changes[field.name] = _read(texts[name], hints[field.name], name)
        if not any(other.startswith(f"{name}.") for other in texts):
            continue
        if value is None:
            if name in texts:
                raise ArgumentError(f"The setting {name!r} is none, so its own settings mean nothing.")
            value = _inner(hints[field.name])()  # what is none by default is switched on by any of its own settings
        changes[field.name] = _filled(value, texts, f"{name}.")
    return replace(config, **changes)


def _read(text: str, hint: Any, name: str) -> Any:
    """The value that a text stands for, by the type of its field."""
    options = _options(hint)
    if NoneType in options and text.lower() == "none":
        return None
    for option in options:
        if get_origin(option) is Literal and text in get_args(option):
            return text
        if option is bool and text.lower() in _FLAGS:
            return _FLAGS[text.lower()]
        if option in (int, float):
            try:
                return option(text)
            except ValueError:
                continue
        if option is str and text:
            return text
    raise ArgumentError(f"Expected the setting {name}={text!r} to be {' or '.join(_words(options, name))}.")


def _words(options: tuple[Any, ...], name: str) -> list[str]:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: "none"}
    said = []
    for option in options:
        if get_origin(option) is Literal:
            said.append(" or ".join(repr(choice) for choice in get_args(option)))
        elif is_dataclass(option):
            said.append("set by its fields, " + ", ".join(f"{name}.{field.name}" for field in fields(option)))
        else:
            said.append(words.get(option, "of another type"))
    return said


def _options(hint: Any) -> tuple[Any, ...]:
    return (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)


def _inner(hint: Any) -> Any:
    """The configuration inside a field, if its type has one."""
    return next((option for option in _options(hint) if is_dataclass(option)), None)
