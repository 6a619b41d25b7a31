"""A small writer of TOML: a schema is edited by people, so the text is laid out for them."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH = 100


def write_key(key: str) -> str:
    """Write a key, in quotes where it needs them.

    >>> write_key("age"), write_key("native country")
    ('age', '"native country"')
    """
    return key if _BARE.fullmatch(key) else write_text(key)


def write_text(text: str) -> str:
    r"""Write a basic TOML string.

    >>> write_text('say "hi"\n')
    '"say \\"hi\\"\\n"'
    """
    # JSON escapes what TOML escapes, but for the delete character, which JSON leaves bare.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_value(value: object) -> str:
    """Write a scalar, or a short list in one line.

    >>> write_value(True), write_value(50_000), write_value(0.5), write_value(date(2020, 1, 31)), write_value([1, 2])
    ('true', '50_000', '0.5', '2020-01-31', '[1, 2]')
    """
    if isinstance(value, list | tuple):
        return "[" + ", ".join(write_value(each) for each in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    return write_text(str(value))


def write_list(values: Sequence[object], indent: int) -> str:
    """Write a list, wrapped over lines where it is long.

    >>> write_list(["a", "b"], indent=9)
    '["a", "b"]'
    """
    nested = [value for value in values if isinstance(value, list | tuple) and value]
    if any(isinstance(value[0], list | tuple) for value in nested):
        rings = ",\n".join(write_list(value, _WIDTH) for value in nested)
        return f"[\n{rings},\n]"
    parts = [write_value(value) for value in values]
    short = "[" + ", ".join(parts) + "]"
    if len(short) + indent <= _WIDTH:
        return short
    lines, line = [], "  "
    for part in parts:
        if len(line) + len(part) + 1 > _WIDTH and line.strip():
            lines.append(line.rstrip())
            line = "  "
        line += part + ", "
    return "\n".join(["[", *lines, line.rstrip(), "]"])


def write_pairs(pairs: Mapping[str, object]) -> str:
    """Write the lines of one TOML table with their equals signs aligned.

    >>> print(write_pairs({"kind": "integer", "lower": 0}))
    kind  = "integer"
    lower = 0
    """
    width = max(len(write_key(key)) for key in pairs)
    lines = []
    for key, value in pairs.items():
        listed = isinstance(value, list | tuple)
        text = write_list(list(value), width + 3) if listed else write_value(value)  # type: ignore[call-overload]
        lines.append(f"{write_key(key):<{width}} = {text}")
    return "\n".join(lines)
