"""Kills: a detector's processes are stopped by kill -9 at random points, and its ledger is held against its answers.

    python -m benchmarks.detection_kills --kills 50 --questions 10000 -o benchmarks/results/detection_kills.json

A process asks one row after another and tells each answer through a pipe; it is killed after a random time. After every
kill the allowance on disk must count every answer that came out, and at most one charge more (the one whose answer
was lost). Then two processes at once ask for the rest, until both are refused. Rows are made up.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.machine import describe_machine
from sfumato.detection import Detector, MixtureMembers
from sfumato.errors import BudgetError
from sfumato.schema import Schema

SCHEMA = Schema.from_dict({"rows": 300, "columns": {"x": {"kind": "continuous", "lower": -5.0, "upper": 5.0}}})
ROW = pa.table({"x": [0.5]})


def made(folder: Path, questions: int) -> Detector:
    """A small detector of made-up rows."""
    rows = pa.table({"x": np.random.default_rng(0).normal(size=300)})
    training = MixtureMembers(components=1, rounds=3, starts=1)
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "charges": questions, "members": 3, "training": training}
    return Detector.fit(rows, SCHEMA, folder, **given)


def started(detector: Detector) -> tuple[int, int]:
    """A process that asks until it is refused, and the end of the pipe that its answers come through."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    os.close(read)
    try:
        while True:
            detector.ask(ROW)
            os.write(write, b"a")  # one byte an answer, so that none can be told in part
    except BudgetError:
        os.write(write, b"r")
    finally:
        os._exit(0)


def told(read: int) -> tuple[int, bool]:
    """How many answers came out, and whether the last word was a refusal."""
    with os.fdopen(read, "rb") as stream:
        said = stream.read()
    return said.count(b"a"), said.endswith(b"r")


def trial(folder: Path, kills: int, questions: int, longest: float, seed: int) -> dict[str, Any]:
    """Kill so many processes, then let two finish at once; what was counted on the way."""
    detector, chance = made(folder, questions), random.Random(seed)
    answers, lost, exact = 0, 0, True
    for _ in range(kills):
        child, read = started(detector)
        time.sleep(chance.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        came, _ = told(read)
        answers += came
        spent = questions - detector.left
        exact = exact and answers + lost <= spent <= answers + lost + 1
        lost = spent - answers
    before = answers
    both = [started(detector) for _ in range(2)]
    ends = []
    for child, read in both:
        ends.append(told(read))
        os.waitpid(child, 0)
    answers += sum(came for came, _ in ends)
    return {
        "kills": kills,
        "questions": questions,
        "answers_before_last_kill": before,
        "answers_of_two_at_once": [came for came, _ in ends],
        "both_refused_at_the_end": all(refused for _, refused in ends),
        "answers": answers,
        "charges_whose_answer_was_lost": lost,
        "spent": questions - detector.left,
        "damaged_records": detector._allowance.damaged(),
        "exact_after_every_kill": exact,
        "exact_at_the_end": answers + lost == questions == questions - detector.left,
    }


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--longest", type=float, default=0.1, help="seconds until a process is killed, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        found = trial(Path(place) / "detector", given.kills, given.questions, given.longest, given.seed)
    found["seconds"] = round(time.perf_counter() - start, 1)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    if given.output:
        given.output.write_text(json.dumps({"machine": describe_machine(), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
