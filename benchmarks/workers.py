"""Workers: jobs of a benchmark, done in several processes at once.

Each worker is a fresh process with a JAX of its own, so that one compiles while another computes. On one GPU they share
its memory, which JAX then must not take in advance.
"""

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from typing import Any

_LATE = "late"


def finished(
    work: Callable[[Any], Any], jobs: Iterable[Any], *, processes: int = 1, time_limit: float | None = None
) -> Iterator[Any]:
    """What comes of each job, in the order in which they end.

    Jobs are begun in their order, and none after ``time_limit`` seconds. A failed job is told on stderr and does not
    stop the others; when all are done, the benchmark ends with an error.

    >>> list(finished(abs, [-2, 3]))
    [2, 3]
    """
    deadline = None if time_limit is None else time.monotonic() + time_limit
    late, failed = 0, 0
    for state, found in _outcomes(partial(_guarded, work, deadline), list(jobs), processes):
        if state == "done":
            yield found
        elif state == _LATE:
            late += 1
        else:
            failed += 1
            print(found, file=sys.stderr, flush=True)
    if late:
        print(f"time is up: {late} jobs were not begun", flush=True)
    if failed:
        raise SystemExit(f"{failed} jobs failed.")


def _outcomes(guarded: Callable[[Any], tuple[str, Any]], jobs: list[Any], processes: int) -> Iterator[tuple[str, Any]]:
    if processes == 1:
        yield from map(guarded, jobs)
        return
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # Threads of linear algebra that wait for each other's cores take many times as long.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    with ProcessPoolExecutor(min(processes, max(1, len(jobs))), mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(guarded, job) for job in jobs]):
            yield future.result()


def _guarded(work: Callable[[Any], Any], deadline: float | None, job: Any) -> tuple[str, Any]:
    if deadline is not None and time.monotonic() > deadline:  # this clock is the same in all processes
        return _LATE, None
    try:
        return "done", work(job)
    except Exception:
        return "failed", f"{job}\n{traceback.format_exc()}"
