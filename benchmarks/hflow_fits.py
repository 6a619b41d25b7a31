"""Fits of the benchmarks: a method from its settings, a fit through the doors, its synthetic rows and likelihoods.

NumPy, JAX, Equinox, Optax and dp-accounting are all that is needed here.
"""

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hflow_data import Packed
from sfumato.schema import Boolean, Categorical, Schema

_SCORED_AT_ONCE = 500


def method_of(settings: dict[str, Any], name: str = "hflow", preset: str | None = None) -> Any:
    """A method, or a preset of it, with some fields replaced; one that is a group of settings takes a JSON object.

    >>> method_of({"clipping": {"kind": "layer"}}).clipping
    Clipping(kind='layer', bound=2.0, sparsity=0.5)
    """
    from sfumato.synthesizers import method_named

    kind: Any = method_named(name)
    base: Any = getattr(kind, preset)() if preset else kind()

    def value(field: str, given: Any) -> Any:
        default = getattr(base, field)
        if isinstance(given, dict) and dataclasses.is_dataclass(default):
            return dataclasses.replace(default, **given)  # type: ignore[type-var]
        return given

    return dataclasses.replace(base, **{field: value(field, given) for field, given in settings.items()})


def labelled(method: Any, schema: Schema, target: str) -> Any:
    """The method told of the column that is predicted, where it can be told and the column has levels.

    Published methods that know of labels are told of them in the papers' comparisons too; the label is public.

    >>> from sfumato.schema import Boolean
    >>> labelled(method_of({}, "merf"), Schema(columns={"y": Boolean()}), "y").label
    'y'
    """
    can = "label" in {field.name for field in dataclasses.fields(method)} and method.label is None
    return dataclasses.replace(method, label=target) if can and has_levels(schema, target) else method


def has_levels(schema: Schema, column: str) -> bool:
    """Whether a column is one of classes, and no number."""
    return isinstance(schema.columns[column], Categorical | Boolean)


def without_label(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings but for the label, which is another one in each table, and for what says nothing where there is none.

    >>> without_label({"rounds": 16, "label": None, "labelled": 0.25, "aim": {"label": None}})
    {'rounds': 16, 'aim': {}}
    """
    idle = {"label"} if settings.get("label") else {"label", "labelled"}
    deeper = lambda value: without_label(value) if isinstance(value, dict) else value
    return {name: deeper(value) for name, value in settings.items() if name not in idle}


def fit(
    data: Packed,
    method: Any,
    *,
    epsilon: float,
    delta: float,
    private: bool = True,
    public: dict[str, np.ndarray] | None = None,
) -> tuple[Any, dict[str, Any]]:
    """A fitted model, and what it took and cost; ``public`` are cells of rows that nobody need protect."""
    from sfumato.encoding.layout import layout_of
    from sfumato.privacy import Budget, Curator, Ledger, Randomness
    from sfumato.privacy.accounting import headline
    from sfumato.privacy.adjacency import Adjacency
    from sfumato.privacy.unprotected import Unprotected

    ledger = Ledger(Budget(epsilon=epsilon, delta=delta), Adjacency(relation=method.relation))
    doors = Curator if private else Unprotected
    rows = {"low": data.low, "width": data.width}
    start = time.perf_counter()
    curator = doors(rows, ledger=ledger, randomness=Randomness.from_os(), public_size=data.schema.rows)
    curator = curator if public is None else curator.holding(rows, public)
    model = method.fit(curator, layout_of(data.schema))
    seconds = time.perf_counter() - start
    stated = headline(ledger.events, ledger.adjacency, delta).epsilon
    return model, {
        "seconds": round(seconds, 1),
        "certified_epsilon": stated if np.isfinite(stated) else "infinity",
        "delta": delta,
    }


def draw(model: Any, num_rows: int, levels: tuple[int | None, ...]) -> np.ndarray:
    """So many points of the unit cube from a model, as a release draws them."""
    import jax

    from sfumato.privacy import Randomness
    from sfumato.release.release import sample_points

    key = jax.random.wrap_key_data(Randomness.from_os().key[:2])
    return sample_points(model, key, num_rows, levels)


def log_densities(model: Any, low: np.ndarray, width: np.ndarray, draws: int) -> np.ndarray:
    """The log of the mean density on the unit cube over each row's cells, importance-weighted, of a spline flow.

    In the mean over points it is a lower bound, which tightens with ``draws``.
    """
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from sfumato.release.release import _lattice

    points = _lattice(draws, low.shape[1])
    score = eqx.filter_jit(lambda flow, low, width: jax.vmap(flow.log_mean_density, (0, 0, None))(low, width, points))
    found = []
    for start in range(0, len(low), _SCORED_AT_ONCE):
        lows, widths = (part[start : start + _SCORED_AT_ONCE] for part in (low, width))
        missing = ((0, _SCORED_AT_ONCE - len(lows)), (0, 0))  # one shape, so that nothing is compiled twice
        padded = (jnp.asarray(np.pad(part, missing, mode="edge"), jnp.float32) for part in (lows, widths))
        found.append(np.asarray(score(model, *padded), np.float64)[: len(lows)])
    return np.concatenate(found)


def write_packed(target: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write in full or not at all, so that a run that was cut off is not taken for a result."""
    partial = target.with_suffix(".part.npz")
    np.savez_compressed(partial, **arrays)
    os.replace(partial, target)  # noqa: PTH105


def versions() -> dict[str, str]:
    """The versions that a fit rests on."""
    from importlib.metadata import version

    return {name: version(name) for name in ("sfumato", "jax", "numpy", "equinox", "optax", "dp-accounting")}
