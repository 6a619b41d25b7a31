"""Accounts: the command that says what noisy gradient descent costs, by every accountant. Needs no data."""

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer

from sfumato.checks import between, whole
from sfumato.cli.app import app
from sfumato.cli.console import listing, print_json, print_rich, say, watched
from sfumato.cli.options import Force, Json
from sfumato.cli.outputs import check_output, name_of
from sfumato.cli.pictures import SUFFIXES, check_drawing, draw_curves
from sfumato.errors import ArgumentError
from sfumato.privacy.accountants import (
    ACCOUNTANTS,
    Accountant,
    check_delta,
    curves,
    descent,
    least_noise,
    most_steps,
)

_POINTS = 16
_FAR = 200.0


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is given of noise, steps and epsilon; the one that is not is asked for."""

    rate: float
    delta: float
    noise: float | None
    steps: int | None
    epsilon: float | None

    @property
    def asked(self) -> str:
        """The name of what is asked for."""
        missing = [name for name in ("noise", "steps", "epsilon") if getattr(self, name) is None]
        if len(missing) != 1:
            raise ArgumentError("account: give two of --noise, --steps and --epsilon; the third is found.")
        return missing[0]

    def check(self) -> None:
        """Refuse what no accountant could answer, before any works."""
        check_delta(self.delta)
        descent(rate=self.rate, noise=1.0 if self.noise is None else self.noise, steps=self.steps or 1)
        whole(1, steps=1 if self.steps is None else self.steps)
        if self.epsilon is not None:
            between(0.001, _FAR, epsilon=self.epsilon)

    def answer(self, accountant: Accountant) -> float | None:
        """What one accountant finds, or None where it has no answer."""
        given = {"rate": self.rate, "delta": self.delta}
        if self.noise is None:
            return least_noise(accountant, steps=self.steps or 1, epsilon=self.epsilon or 0.0, **given)
        if self.steps is None:
            return most_steps(accountant, noise=self.noise, epsilon=self.epsilon or 0.0, **given)
        found = accountant.epsilon(descent(rate=self.rate, noise=self.noise, steps=self.steps), self.delta)
        return found if isfinite(found) else None


@app.command()
def account(
    *,
    delta: Annotated[float, typer.Option("--delta", help="The delta of the guarantee.")],
    rate: Annotated[float | None, typer.Option("--rate", help="The chance of a row to be in a batch.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Expected rows of a batch, with --rows.")] = None,
    rows: Annotated[int | None, typer.Option("--rows", help="Rows of the table, with --batch.")] = None,
    noise: Annotated[
        float | None, typer.Option("--noise", help="Deviation of the noise over the clipping bound.")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Noisy gradient steps.")] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="The budget, to find noise or steps.")] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw epsilon by steps into a .png or .svg file.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Compute what DP-SGD costs by every accountant, or the noise or the steps that a budget allows. Needs no data.

    Poisson batches, Gaussian noise, one row added or removed. Give two of --noise, --steps and --epsilon: the
    third is found. Upper bounds hold; the approximation may understate.
    """
    question = Question(rate=_rate(rate, batch, rows), delta=delta, noise=noise, steps=steps, epsilon=epsilon)
    asked = question.asked
    question.check()
    if picture is not None:
        if asked != "epsilon":
            raise ArgumentError("account: a picture shows epsilon by steps, so it needs --noise and --steps.")
        check_output(picture, force=force, suffixes=SUFFIXES)
        check_drawing()
    found: dict[str, float | None] = {}
    with watched("accounting", total_is_public=True) as progress:
        for place, accountant in enumerate(ACCOUNTANTS):
            progress("accounting", place, len(ACCOUNTANTS))
            found[accountant.name] = question.answer(accountant)
        if picture is not None:
            progress("drawing", 0, 1)
            _draw(question, picture)
    if json:
        print_json({**_fields(question), "asked": asked, "accountants": _entries(found), "picture": name_of(picture)})
    else:
        print_rich(_table(question, found))
        if picture is not None:
            say(f"Written to {picture}.")


def _rate(rate: float | None, batch: int | None, rows: int | None) -> float:
    if (rate is None) == (batch is None and rows is None):
        raise ArgumentError("account: give --rate, or --batch and --rows.")
    if rate is not None:
        return rate
    if batch is None or rows is None:
        raise ArgumentError("account: --batch and --rows go together.")
    whole(1, batch=batch, rows=rows)
    if batch > rows:
        raise ArgumentError(f"Expected batch={batch} of at most rows={rows}.")
    return batch / rows


def _fields(question: Question) -> dict[str, Any]:
    names = ("rate", "noise", "steps", "epsilon", "delta")
    return {name: getattr(question, name) for name in names if getattr(question, name) is not None} | {
        "relation": "add-or-remove-one",
        "sampling": "Poisson",
    }


def _entries(found: dict[str, float | None]) -> list[dict[str, Any]]:
    return [
        {
            "accountant": accountant.name,
            "value": found[accountant.name],
            "is": accountant.says,
            "guarantee": accountant.says == "upper bound",
            "note": accountant.note,
        }
        for accountant in ACCOUNTANTS
    ]


def _table(question: Question, found: dict[str, float | None]) -> Any:
    given = ", ".join(f"{name} {value:g}" for name, value in _fields(question).items() if not isinstance(value, str))
    asked = question.asked
    head = {"noise": "least noise", "steps": "most steps", "epsilon": "epsilon"}[asked]
    rows = [(one.name, _words(found[one.name], asked), one.says, one.note) for one in ACCOUNTANTS]
    return listing(f"DP-SGD: {given}", ("accountant", head, "what it is", "how"), rows)


def _words(value: float | None, asked: str) -> str:
    if value is None or (value > _FAR and asked == "epsilon"):
        return {"epsilon": f"above {_FAR:g}", "steps": "none", "noise": "no noise is enough"}[asked]
    return f"{value:,}" if asked == "steps" else f"{value:.4f}"


def _draw(question: Question, picture: Path) -> None:
    last, noise = question.steps or 1, question.noise or 1.0
    steps = sorted({max(1, round(last * place / _POINTS)) for place in range(1, _POINTS + 1)})
    found = curves(rate=question.rate, noise=noise, steps=steps, delta=question.delta)
    if question.rate < 1:
        del found["zCDP"]  # no rule for sampling: far above all others, it would flatten them
    shown = {name: ([float(step) for step in steps], heights) for name, heights in found.items()}
    title = f"rate {question.rate:.4g}, noise {noise:g}, delta {question.delta:g}"
    draw_curves(shown, picture, title=title, labels=("steps", "epsilon"), dashed=("CLT", "PRV lower"))
