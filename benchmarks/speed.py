"""Speed: the private step over the non-private step of the same model, in one run; training and sampling rates.

    python -m benchmarks.speed                 # CPU, or the GPU where JAX has one
    python -m benchmarks.speed --batches 512 --features 10

The private step is the one that ``noisy_descent`` compiles: Poisson draw, per-row gradients, clipping on the integer
grid, noise and Adam. The non-private step takes a batch of the same size, the mean gradient and Adam. Both run many
steps inside one compiled loop, in turn, and the median of the rounds is kept.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.machine import describe_machine
from sfumato.fitting.likelihood import negative_log_likelihood
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.privacy import FlatClip, PoissonSampling, Randomness, SgdPlan
from sfumato.privacy.chacha import keystream
from sfumato.privacy.clipping import GRID
from sfumato.privacy.noise import gaussian_integers
from sfumato.privacy.randomness import Stream, nonce
from sfumato.privacy.step import PrivateRows, gradient_step


def loops(shape: MafShape, num_rows: int, batch: int) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The loops to compare, each a function of (carry, ..., number of steps), with its arguments."""
    random = np.random.default_rng(0)
    low = random.beta(2, 5, size=(num_rows, shape.num_features)).astype(np.float32)
    rows = PrivateRows.of({"low": low, "width": np.full_like(low, 0.01)})
    key = Randomness.from_os().key
    model = MaskedAutoregressiveFlow.start(shape, key=jax.random.wrap_key_data(key[:2]))
    params, fixed = eqx.partition(model, eqx.is_inexact_array)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    adam = optax.adam(1e-3)
    plan = SgdPlan(sampling=PoissonSampling(rate=batch / num_rows), clip=FlatClip(bound=10.0), steps=10**6)

    def loss(params: Any, row: Any, row_key: Any) -> Any:
        return negative_log_likelihood(eqx.combine(params, fixed), row, row_key)

    def descend(gradient: Any, carry: Any) -> Any:
        change, state = adam.update(gradient, carry[1])
        return optax.apply_updates(carry[0], change), state

    gradient = gradient_step(loss, params, plan, 10.0 * GRID, float(batch))

    def private(carry: Any, rows: Any, key: Any, steps: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda t, c: descend(gradient(c[0], rows, key, 1, t), c), carry)

    def plain_gradient(params: Any, rows: Any, key: Any, step: Any) -> Any:
        row_key = jax.random.fold_in(jax.random.wrap_key_data(key[:2]), step)
        index = jax.random.randint(row_key, (batch,), 0, num_rows)
        chosen = jax.tree.map(lambda column: column[index], rows.columns)
        keys = jax.random.split(row_key, batch)
        return jax.grad(lambda p: jnp.mean(jax.vmap(loss, (None, 0, 0))(p, chosen, keys)))(params)

    def plain(carry: Any, rows: Any, key: Any, steps: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda t, c: descend(plain_gradient(c[0], rows, key, t), c), carry)

    def noise(total: Any, key: Any, steps: Any) -> Any:
        def add(t: Any, total: Any) -> Any:
            return total + gaussian_integers(key, nonce(1, t, Stream.NOISE), size, 10.0 * GRID)

        return jax.lax.fori_loop(0, steps, add, total)

    def draw(total: Any, key: Any, steps: Any) -> Any:
        def add(t: Any, total: Any) -> Any:
            return total + keystream(key, nonce(1, t, Stream.SAMPLING), rows.real.shape[0])

        return jax.lax.fori_loop(0, steps, add, total)

    carry = (params, adam.init(params))
    return {
        "private": (private, (carry, rows, key)),
        "plain": (plain, (carry, rows, key)),
        "noise": (noise, (jnp.zeros(size, jnp.int64), key)),
        "draw": (draw, (jnp.zeros(rows.real.shape[0], jnp.uint32), key)),
    }


def time_loops(shape: MafShape, num_rows: int, batch: int, rounds: int, steps: int) -> dict[str, Any]:
    """Seconds a step of each loop, with compile time and the compiler's own figure for temporary memory."""
    with jax.enable_x64(True):
        made = loops(shape, num_rows, batch)
        compiled, compile_seconds, memory = {}, {}, {}
        for name, (function, arguments) in made.items():
            start = time.perf_counter()
            compiled[name] = jax.jit(function).lower(*arguments, steps).compile()
            compile_seconds[name] = round(time.perf_counter() - start, 2)
            memory[name] = int(compiled[name].memory_analysis().temp_size_in_bytes)
            jax.block_until_ready(compiled[name](*arguments, steps))
        seconds: dict[str, list[float]] = {name: [] for name in made}
        for _ in range(rounds):
            for name, (_, arguments) in made.items():
                start = time.perf_counter()
                jax.block_until_ready(compiled[name](*arguments, steps))
                seconds[name].append((time.perf_counter() - start) / steps)
    step = {name: median(values) for name, values in seconds.items()}
    return {
        "features": shape.num_features,
        "parameters": int(made["noise"][1][0].size),
        "rows": num_rows,
        "batch": batch,
        "milliseconds": {name: round(1e3 * value, 3) for name, value in step.items()},
        "private_over_plain": round(step["private"] / step["plain"], 2),
        "noise_share": round(step["noise"] / step["private"], 4),
        "draw_share": round(step["draw"] / step["private"], 4),
        "private_rows_per_second": round(batch / step["private"]),
        "compile_seconds": compile_seconds,
        "temporary_bytes": memory,
    }


def time_sampling(shape: MafShape, num_rows: int) -> dict[str, Any]:
    """Rows a second from a flow of random weights, by the one-pass inverse."""
    key = jax.random.wrap_key_data(Randomness.from_os().key[:2])
    model = MaskedAutoregressiveFlow.start(shape, key=key)
    sample = eqx.filter_jit(lambda model, keys: jax.vmap(model.sample)(keys))
    keys = jax.random.split(key, num_rows)
    start = time.perf_counter()
    jax.block_until_ready(sample(model, keys))
    first = time.perf_counter() - start
    times = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(sample(model, keys))
        times.append(time.perf_counter() - start)
    return {
        "features": shape.num_features,
        "rows": num_rows,
        "rows_per_second": round(num_rows / median(times)),
        "compile_seconds": round(first - median(times), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", nargs="*", type=int, default=[512, 4096])
    parser.add_argument("--features", nargs="*", type=int, default=[10, 15])
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(f"benchmarks/results/speed_{jax.default_backend()}.json")
    )
    given = parser.parse_args()
    steps, samples = [], []
    for features in given.features:
        shape = MafShape(num_features=features, blocks=5, width=64, depth=2, act_norm=False)
        for batch in given.batches:
            steps.append(time_loops(shape, given.rows, batch, given.rounds, given.steps))
            row = steps[-1]
            print(
                f"{features} features, batch {batch}: private step {row['milliseconds']['private']} ms, "
                f"non-private {row['milliseconds']['plain']} ms, ratio {row['private_over_plain']}, "
                f"noise {row['noise_share']:.1%} and draw {row['draw_share']:.1%} of the step, "
                f"{row['private_rows_per_second']:,} rows/s, compile {row['compile_seconds']['private']} s",
                flush=True,
            )
        samples.append(time_sampling(shape, 65_536))
        print(f"{features} features: sampling {samples[-1]['rows_per_second']:,} rows/s", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    result = {"machine": describe_machine(), "steps": steps, "sampling": samples, "peak_resident_mebibytes": peak}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
