"""Small tables and settings that make every method fast, and what is fitted to them, once for all files."""

import json
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.fitting.codecs import PaidBins
from sfumato.fitting.generator_start import GeneratorSize
from sfumato.fitting.marginals import MarginalShare
from sfumato.fitting.matching import Training
from sfumato.schema import Boolean, Categorical, Continuous, Date, Datetime, Identifier, Integer, Schema, Unit
from sfumato.synthesizers.dp_gan import CriticSize, Game
from sfumato.synthesizers.gs_wgan import Classroom
from sfumato.synthesizers.hflow import FlowSize
from sfumato.synthesizers.tbart import TransformerSize
from thorough import marks_of

FEW = PaidBins(rounds=2, bins=8, codes=4)
TINY_GAN = {
    "generator": GeneratorSize(latent=2, width=4, depth=1),
    "critic": CriticSize(width=4, depth=1),
    "game": Game(made=4, critic_steps=2),
    "marginals": MarginalShare(rounds=1, bins=8),
}
TINY_CLASS = {
    "generator": GeneratorSize(latent=2, width=4, depth=1),
    "critic": CriticSize(width=4, depth=1),
    "teaching": Classroom(parts=3, rounds=2, made=2, warm_steps=1, batch=2, maker_steps=1),
    "marginals": MarginalShare(rounds=1, bins=8),
}
SMALL, SHORT = GeneratorSize(latent=2, width=4, depth=1), Training(steps=2, batch=8)
TINY = {
    "gs-wgan": TINY_CLASS,
    "pate-ctgan": TINY_CLASS,
    "pate-gan": TINY_CLASS,
    "auto": {"chain": sf.Chain(steps=4, width=4, codec=FEW), "aim": sf.Aim(codec=FEW, even_bins=4, rounds=2)},
    "chain": {"steps": 4, "width": 4, "codec": FEW},
    "aim": {"even_bins": 4, "rounds": 2},
    "independent": {"even_bins": 4},
    "mog": {"components": 2, "rounds": 2},
    "mst": {"even_bins": 4},
    "tbart": {
        "steps": 4,
        "size": TransformerSize(layers=1, width=4, heads=2),
        "codec": FEW,
        "even_bins": 7,
    },
    "maf": {"steps": 4, "blocks": 2, "width": 4, "depth": 1},
    "dp-cgan": {**TINY_GAN, "steps": 4},
    "dp-ctgan": {**TINY_GAN, "steps": 4},
    "dpgan": {**TINY_GAN, "steps": 4},
    "merf": {"features": 12, "size": SMALL, "training": SHORT, "marginals": MarginalShare(rounds=1, bins=8)},
    "ntk": {"hidden": 3, "size": SMALL, "training": SHORT, "marginals": None},
    "hflow": {"steps": 4, "size": FlowSize(blocks=1, width=4), "marginals": MarginalShare(rounds=1, bins=8)},
}
"""Settings that make each method fast; what it learns does not matter here."""

ROWS = 400
"""The declared size of most tables: the same, so that their noise is calibrated once."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A small table with its schema and budget: a small one, which takes the accountant the least time."""

    schema: Schema
    columns: dict
    epsilon: float = 0.1
    delta: float = 1e-5

    @property
    def table(self):
        return pa.table(self.columns)


def case_of(columns, values, *, rows=ROWS, unit=None, **rest):
    return Case(schema=Schema(columns=columns, rows=rows, unit=unit), columns=values, **rest)


def made_up(num_rows):
    draw = np.random.default_rng(3)
    days = np.datetime64("2019-06-01") + draw.integers(0, 900, num_rows)
    return {
        "who": pa.array([f"id {number}" for number in range(num_rows)], pa.string()),
        "weight": pa.array(draw.normal(70, 15, num_rows), pa.float64(), mask=draw.random(num_rows) < 0.2),
        "visits": pa.array(draw.poisson(3, num_rows), pa.int64(), mask=draw.random(num_rows) < 0.1),
        "smokes": pa.array(draw.random(num_rows) < 0.3, pa.bool_(), mask=draw.random(num_rows) < 0.1),
        "town": pa.array(draw.choice(["Ulm", "Graz", "Bern", "Oz"], num_rows).tolist(), pa.string()),
        "price": pa.array(np.round(draw.random(num_rows) * 9, 2), pa.float64()),
        "born": pa.array(days, pa.date32()),
        "seen": pa.array(days.astype("datetime64[s]"), pa.timestamp("s"), mask=draw.random(num_rows) < 0.5),
    }


MIXED = {
    "who": Identifier(regenerate="number"),
    "weight": Continuous(lower=0, upper=200, nullable=True),
    "visits": Integer(lower=0, upper=20, nullable=True),
    "smokes": Boolean(nullable=True),
    "town": Categorical(levels=("Ulm", "Graz", "Bern", "other"), other="other"),
    "price": Continuous(lower=0, upper=9, decimals=2),
    "born": Date(lower=date(2019, 1, 1), upper=date(2022, 12, 31)),
    "seen": Datetime(lower=datetime(2019, 1, 1), upper=datetime(2022, 1, 1), resolution="day", nullable=True),
}
LEVELS = {"a": Categorical(levels=("x", "y", "z")), "b": Categorical(levels=(3, 1), nullable=True), "c": Boolean()}
NUMBERS = {"u": Continuous(lower=0, upper=1), "v": Continuous(lower=-5, upper=5)}

CASES = {
    "mixed": case_of(MIXED, made_up(300)),
    "one column": case_of({"a": Boolean()}, {"a": [True, False] * 100}),
    "all categorical": case_of(LEVELS, {"a": ["x", "y"] * 50, "b": [3, None] * 50, "c": [True] * 100}),
    "all continuous": case_of(NUMBERS, {"u": np.linspace(0, 1, 90), "v": np.linspace(-5, 5, 90)}),
    "empty": case_of(NUMBERS, {"u": pa.array([], pa.float64()), "v": pa.array([], pa.float64())}),
    "one row": case_of(NUMBERS, {"u": [0.5], "v": [2.0]}),
    "undeclared rows": case_of(NUMBERS, {"u": np.linspace(0, 1, 90), "v": np.linspace(-5, 5, 90)}, rows=None),
    # A small epsilon keeps the accounting of several rows a unit short; the same columns are compiled once.
    "unit": case_of(
        {"who": Identifier(), **NUMBERS},
        {"who": [number // 7 for number in range(90)], "u": np.linspace(0, 1, 90), "v": np.linspace(-5, 5, 90)},
        unit=Unit(column="who", max_rows=3),
        epsilon=0.05,
    ),
}

over_methods = pytest.mark.parametrize("name", sorted(sf.REGISTRY))
over_gradients = pytest.mark.parametrize("name", sorted(name for name, tiny in TINY.items() if "steps" in tiny))
MET_ELSEWHERE = {"auto": ("mixed", "undeclared rows", "unit", "one column")}
"""Methods that hand a table on to another one, which meets all cases itself: those where the choice may differ."""

ONCE_A_FAMILY = ("one column", "all categorical", "undeclared rows", "unit")
"""Cases that only one of the methods that share their code meets each time (``thorough.py``)."""


def _met(name, case):
    marks = marks_of(name) if case in ONCE_A_FAMILY else []
    return pytest.param(name, case, marks=marks, id=f"{name}-{case}")


over_all = pytest.mark.parametrize(
    ("name", "case"),
    [_met(name, case) for name in sorted(sf.REGISTRY) for case in MET_ELSEWHERE.get(name, tuple(CASES))],
)


def can_score(name):
    return "log_prob" in sf.REGISTRY[name].can


over_scoring = pytest.mark.parametrize(("name", "case"), [met for met in over_all.args[1] if can_score(met.values[0])])
over_sampling_alone = pytest.mark.parametrize("name", sorted(name for name in sf.REGISTRY if not can_score(name)))


def method_of(name, **settings):
    return sf.REGISTRY[name](**{**TINY[name], **settings})


@cache
def fitted(name, case):
    chosen = CASES[case]
    return sf.fit(chosen.table, chosen.schema, method=method_of(name), epsilon=chosen.epsilon, delta=chosen.delta)


def plain(certificate):
    return json.dumps(certificate.to_dict(), sort_keys=True)
