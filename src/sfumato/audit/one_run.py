"""One run: an end-to-end attack on the release itself, with the guesses about all canaries scored in one fit.

Nothing of the inside is seen: rows in, a release out. That is what an attacker has, and why the bound is loose: a
well-trained model has little to say about single rows. The attack finds gross leaks alone, and 0 is its usual answer.
"""

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np

from sfumato import pipeline
from sfumato.audit.bounds import one_run_bound
from sfumato.audit.finding import Finding
from sfumato.audit.neighbours import SCHEMAS, Row, text_table, trial_rows
from sfumato.encoding.features import encode_features
from sfumato.privacy import Budget, Curator, Randomness, Relation
from sfumato.privacy.accounting import headline
from sfumato.privacy.events import NonPrivate
from sfumato.progress import Progress, quiet
from sfumato.release import Release
from sfumato.synthesizers import Synthesizer

_GUESSED = 0.2
"""The share of canaries that is guessed about, the highest and the lowest scores; fixed before any run."""


def one_run(
    method: Synthesizer,
    *,
    budget: Budget,
    canaries: int = 500,
    plain: int = 1_000,
    confidence: float = 0.999,
    random: np.random.Generator,
    randomness: Randomness | None = None,
    progress: Progress = quiet,
) -> Finding:
    """Fit a public made-up table with canaries in it, and guess from the release which of them were in.

    Each canary is in by a fair coin; under replace-one a canary that is out gives its place to a plain row. Canaries
    are scored by their likelihood under the release, or where a method has none by their distance to sampled rows.
    """
    schema = replace(SCHEMAS["mixed"], rows=plain + (canaries if _is_replacing(method) else canaries // 2))
    hidden, coins = corner_rows(canaries, random), random.integers(2, size=canaries).astype(bool)
    others = trial_rows("mixed", plain + canaries, int(random.integers(2**31)))
    rows = others[:plain] + [row for row, coin in zip(hidden, coins, strict=True) if coin]
    if _is_replacing(method):
        rows += [row for row, coin in zip(others[plain:], coins, strict=True) if not coin]
    release = pipeline.fit_through(
        Curator,
        text_table(rows, schema),
        schema,
        method=method,
        budget=budget,
        randomness=Randomness.from_os() if randomness is None else randomness,
        progress=progress,
    )
    # A repeatable key, for tests, makes the certificate infinite; what counts here is what was charged.
    charges = [each for each in release.certificate.charges if not isinstance(each[1], NonPrivate)]
    guesses = 2 * int(_GUESSED * canaries / 2)
    correct = right_guesses(canary_scores(release, hidden, method, random), coins, guesses)
    return Finding(
        name="one run, end to end",
        certified=headline([event for _, event in charges], release.certificate.adjacency, budget.delta).epsilon,
        most=one_run_bound(canaries, guesses, guesses, budget.delta, confidence),
        lower=one_run_bound(canaries, guesses, correct, budget.delta, confidence),
        delta=budget.delta,
        confidence=confidence,
        observations=canaries,
        assumptions="fair coins alone",
    )


def right_guesses(scores: np.ndarray, coins: np.ndarray, guesses: int) -> int:
    """How many are right of so many guesses: "in" for the highest scores, "out" for the lowest.

    >>> right_guesses(np.array([3.0, 1.0, 2.0, 0.0]), np.array([True, False, False, False]), 2)
    2
    """
    order = np.argsort(scores, kind="stable")
    half = guesses // 2
    return int(np.sum(coins[order[len(order) - half :]]) + np.sum(~coins[order[:half]]))


def corner_rows(num: int, random: np.random.Generator) -> list[Row]:
    """Distinct rows at the corners of the mixed schema's domain, where plain rows are rare."""
    first = date(1900, 1, 1)
    return [
        {
            "age": int(random.choice([0, 1, 119, 120])),
            "sex": "other",
            "income": 1e6 - float(i) if random.integers(2) else 1e-3 * i,
            "smoker": None if random.integers(2) else bool(random.integers(2)),
            "born": first + timedelta(days=int(random.integers(365))),
        }
        for i in range(num)
    ]


def canary_scores(release: Release, hidden: list[Row], method: Synthesizer, random: np.random.Generator) -> np.ndarray:
    """Larger for rows that the release seems to know."""
    table = text_table(hidden, release.schema)
    if "log_prob" in method.can:
        return np.asarray(release.log_prob(table))
    drawn = release.sample_arrow(10_000, seed=int(random.integers(2**31)))
    middle: Any = lambda cells: cells.low + cells.width / 2
    known, asked = middle(encode_features(drawn, release.schema)), middle(encode_features(table, release.schema))
    return np.array([-np.min(np.sum((known - row) ** 2, axis=1)) for row in asked])


def _is_replacing(method: Synthesizer) -> bool:
    return method.relation is Relation.REPLACE_ONE
