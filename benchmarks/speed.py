"""Speed: the private step over the non-private step of the same model, in one run; training and sampling rates.

    python -m benchmarks.speed                 # all models, on the CPU, or the GPU where JAX has one
    python -m benchmarks.speed --model hflow --batches 512

The private step is the one that ``noisy_descent`` compiles: Poisson draw, clipped gradients of rows, clipping on the
integer grid, noise and Adam. ``hflow`` has them by factors; ``per_row`` is the same step with a gradient of every row.
The non-private step takes a batch of the same size by index, the mean gradient and Adam. All run many steps inside one
compiled loop, in turn, and the median of the rounds is kept. Peak memory is the compiler's own figure for a loop, rows
and parameters included; temporary memory is what of it is neither argument nor result.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.machine import describe_machine
from sfumato.fitting.flow_loss import FlowLoss
from sfumato.fitting.likelihood import negative_log_likelihood
from sfumato.models.flows.flow import MafShape, MaskedAutoregressiveFlow
from sfumato.models.flows.spline_flow import SplineFlow, SplineFlowShape
from sfumato.privacy import FlatClip, PoissonSampling, Randomness, SgdPlan
from sfumato.privacy.chacha import keystream
from sfumato.privacy.clipping import GRID
from sfumato.privacy.noise import gaussian_integers
from sfumato.privacy.randomness import Stream, nonce
from sfumato.privacy.step import PrivateRows, factored_step, gradient_step, loop_options, run_steps

DEVIATION = 10.0 * GRID


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One model, as the loops need it.

    ``row_loss(params, row, key)`` is the loss of one row and ``mean_loss(params, rows, keys)`` that of a batch;
    ``factored`` is the loss that gives factors, where the model has one. ``num_noised`` entries get noise.
    """

    name: str
    features: int
    model: Any
    params: Any
    row_loss: Callable[..., Any]
    mean_loss: Callable[..., Any]
    factored: FlowLoss | None
    num_noised: int
    bound: float


def size_of(tree: Any) -> int:
    """The number of entries of all arrays."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def maf(features: int) -> Workload:
    """The masked autoregressive flow, with a gradient of every row."""
    shape = MafShape(num_features=features, blocks=5, width=64, depth=2, act_norm=False)
    model = MaskedAutoregressiveFlow.start(shape, key=start_key())
    params, fixed = eqx.partition(model, eqx.is_inexact_array)

    def loss(params: Any, row: Any, key: Any) -> Any:
        return negative_log_likelihood(eqx.combine(params, fixed), row, key)

    return Workload(
        name="maf",
        features=features,
        model=model,
        params=params,
        row_loss=loss,
        mean_loss=lambda params, rows, keys: jnp.mean(jax.vmap(loss, (None, 0, 0))(params, rows, keys)),
        factored=None,
        num_noised=size_of(params),
        bound=10.0,
    )


def spline_flow(features: int) -> SplineFlow:
    """The flow of DP-HFlow at its default sizes."""
    return SplineFlow.start(SplineFlowShape(features, 3, 64, 2, 4, 8, 1, "low-rank"), key=start_key())


def hflow(features: int) -> Workload:
    """The spline flow of DP-HFlow, whose gradients are clipped by factors."""
    model = spline_flow(features)
    params = model.trainable()
    loss = FlowLoss(skeleton=model)

    def mean_loss(params: Any, rows: Any, keys: Any) -> Any:
        weights = loss.weights(params)
        taps = {name: jnp.zeros(size, jnp.float32) for name, size in loss.taps().items()}
        values, _ = jax.vmap(lambda row, key: loss.row(weights, row, key, taps))(rows, keys)
        return jnp.mean(values) + loss.common(weights)

    return Workload(
        name="hflow",
        features=features,
        model=model,
        params=params,
        row_loss=lambda params, row, key: negative_log_likelihood(eqx.combine(params, model), row, key),
        mean_loss=mean_loss,
        factored=loss,
        num_noised=size_of(jax.eval_shape(loss.weights, params)),
        bound=2.0,
    )


MODELS: dict[str, Callable[[int], Workload]] = {"maf": maf, "hflow": hflow}
FEATURES = {"maf": (10, 15), "hflow": (15,)}


def start_key() -> Any:
    """A key for the start of the parameters, no secret."""
    return jax.random.key(0)


def table(features: int, num_rows: int) -> PrivateRows:
    """Rows of narrow cells."""
    low = np.random.default_rng(0).beta(2, 5, size=(num_rows, features)).astype(np.float32)
    return PrivateRows.of({"low": low, "width": np.full_like(low, 0.01)})


def plain_gradient(work: Workload, num_rows: int, batch: int) -> Callable[..., Any]:
    """The mean gradient of a batch by index, without privacy, with the arguments of a private one."""

    def gradient(params: Any, rows: PrivateRows, key: Any, call: int, step: Any) -> Any:
        row_key = jax.random.fold_in(jax.random.wrap_key_data(key[:2]), step)
        index = jax.random.randint(row_key, (batch,), 0, num_rows)
        chosen = jax.tree.map(lambda column: column[index], rows.columns)
        return jax.grad(work.mean_loss)(params, chosen, jax.random.split(row_key, batch))

    return gradient


def descent(gradient: Callable[..., Any]) -> Callable[..., Any]:
    """A loop of so many steps of Adam, as the curator runs them."""
    adam = optax.adam(1e-3)

    def loop(carry: Any, rows: PrivateRows, key: Any, steps: Any) -> Any:
        def update(gradient: Any, state: Any, params: Any) -> Any:
            change, state = adam.update(gradient, state)
            return optax.apply_updates(params, change), state

        return run_steps(gradient, update, carry, rows, key, 1, 0, steps)

    return loop


def adding(words: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A loop that makes the random words of so many steps, and adds them up so that none is left out."""

    def loop(total: Any, key: Any, steps: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda step, total: total + words(key, step), total)

    return loop


def loops(work: Workload, num_rows: int, batch: int) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The loops to compare, each a function of (..., number of steps), with its arguments."""
    rows, key = table(work.features, num_rows), Randomness.from_os().key
    plan = SgdPlan(sampling=PoissonSampling(rate=batch / num_rows), clip=FlatClip(bound=work.bound), steps=10**6)
    per_row = gradient_step(work.row_loss, work.params, plan, DEVIATION, float(batch))
    gradients = {"private": per_row}
    if work.factored is not None:
        private = factored_step(work.factored, work.params, plan, DEVIATION, float(batch))
        gradients = {"private": private, "per_row": per_row}
    gradients["plain"] = plain_gradient(work, num_rows, batch)
    padded = rows.real.shape[0]
    noise = lambda key, step: gaussian_integers(key, nonce(1, step, Stream.NOISE), work.num_noised, DEVIATION)
    draw = lambda key, step: keystream(key, nonce(1, step, Stream.SAMPLING), padded)
    carry = (work.params, optax.adam(1e-3).init(work.params))
    return {name: (descent(gradient), (carry, rows, key)) for name, gradient in gradients.items()} | {
        "noise": (adding(noise), (jnp.zeros(work.num_noised, jnp.int64), key)),
        "draw": (adding(draw), (jnp.zeros(padded, jnp.uint32), key)),
    }


def time_loops(work: Workload, num_rows: int, batch: int, rounds: int, steps: int) -> dict[str, Any]:
    """Seconds a step of each loop, with compile time and the compiler's own figure for temporary memory."""
    with jax.enable_x64(True):
        made = loops(work, num_rows, batch)
        compiled, compile_seconds, memory, peak = {}, {}, {}, {}
        for name, (function, arguments) in made.items():
            start = time.perf_counter()
            compiled[name] = jax.jit(function, compiler_options=loop_options()).lower(*arguments, steps).compile()
            compile_seconds[name] = round(time.perf_counter() - start, 2)
            memory[name], peak[name] = memory_of(compiled[name].memory_analysis())
            jax.block_until_ready(compiled[name](*arguments, 1))
        # The slow way is there for comparison and must not take most of the time.
        steps_of = {name: max(1, steps // 5) if name == "per_row" else steps for name in made}
        seconds: dict[str, list[float]] = {name: [] for name in made}
        for _ in range(rounds):
            for name, (_, arguments) in made.items():
                start = time.perf_counter()
                jax.block_until_ready(compiled[name](*arguments, steps_of[name]))
                seconds[name].append((time.perf_counter() - start) / steps_of[name])
    step = {name: median(values) for name, values in seconds.items()}
    return {
        "model": work.name,
        "features": work.features,
        "parameters": size_of(work.params),
        "rows": num_rows,
        "batch": batch,
        "milliseconds": {name: round(1e3 * value, 3) for name, value in step.items()},
        "private_over_plain": round(step["private"] / step["plain"], 2),
        "memory_over_plain": round(memory["private"] / memory["plain"], 2),
        "noise_share": round(step["noise"] / step["private"], 4),
        "draw_share": round(step["draw"] / step["private"], 4),
        "private_rows_per_second": round(batch / step["private"]),
        "compile_seconds": compile_seconds,
        "temporary_bytes": memory,
        "peak_bytes": peak,
        "peak_over_plain": round(peak["private"] / peak["plain"], 2),
    }


def memory_of(analysis: Any) -> tuple[int, int]:
    """Bytes that are neither argument nor result, and the most that are held at once, by the compiler's figures.

    For CPUs the compiler's own peak leaves out what is in between: it is the larger of that and of all parts together.
    """
    between = int(analysis.temp_size_in_bytes)
    parts = analysis.argument_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes + between
    return between, int(max(parts, getattr(analysis, "peak_memory_in_bytes", 0)))


def time_sampling(work: Workload, num_rows: int) -> dict[str, Any]:
    """Rows a second from a flow of random weights, by the one-pass inverse."""
    sample = eqx.filter_jit(lambda model, keys: jax.vmap(model.sample)(keys))
    keys = jax.random.split(start_key(), num_rows)
    start = time.perf_counter()
    jax.block_until_ready(sample(work.model, keys))
    first = time.perf_counter() - start
    times = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(sample(work.model, keys))
        times.append(time.perf_counter() - start)
    return {
        "model": work.name,
        "features": work.features,
        "rows": num_rows,
        "rows_per_second": round(num_rows / median(times)),
        "compile_seconds": round(first - median(times), 2),
    }


def export(path: Path) -> None:
    """Weights of the spline flow away from their start, features, and log densities, for ``benchmarks.opacus_step``.

    All in 64 bits, so that only a difference of the two programs can show. Some features lie outside the box of the
    splines. The marginals are left out: at their start they change nothing.
    """
    random = np.random.default_rng(0)
    features = 2 * random.normal(size=(256, 15))
    with jax.enable_x64(True):
        start = spline_flow(15)
        shake = lambda leaf: leaf.astype(jnp.float64) + 0.2 * random.normal(size=leaf.shape)
        flow = eqx.combine(jax.tree.map(shake, start.trainable()), start)
        taps = {name: jnp.zeros(size) for name, size in flow.taps().items()}
        density = jax.vmap(lambda row: flow.row_log_prob(flow.weights(), row, taps)[0] + flow.log_det())(features)
        net, names = flow.conditioner, ("first", "first_bias", "embedding", "context", "last", "last_bias")
        arrays = {name: getattr(net, name) for name in names}
        arrays |= {"middle": net.middle[0], "middle_bias": net.middle_bias[0]}
        arrays |= {name: getattr(flow.linear, name) for name in ("log_scale", "left", "right", "shift")}
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, features=features, log_density=density, **arrays)


def tell(row: dict[str, Any]) -> str:
    """One line of progress."""
    times = ", ".join(f"{name} {value} ms" for name, value in row["milliseconds"].items())
    return (
        f"{row['model']}, {row['features']} features, batch {row['batch']}: {times}; "
        f"private over plain {row['private_over_plain']}, peak memory {row['peak_over_plain']}; "
        f"{row['private_rows_per_second']:,} rows/s, compile {row['compile_seconds']['private']} s"
    )


def kept(path: Path, models: list[str], part: str) -> list[dict[str, Any]]:
    """What the result file says of models that this run leaves out, if it is of the same machine."""
    if not path.exists():
        return []
    old = json.loads(path.read_text())
    return [row for row in old[part] if row["model"] not in models] if old["machine"] == describe_machine() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=[*MODELS, "all"], help="may be repeated; all by default")
    parser.add_argument("--batches", nargs="*", type=int, default=[512, 4096])
    parser.add_argument("--features", nargs="*", type=int, help="10 and 15 for maf, 15 for hflow by default")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--export", type=Path, help="write weights and log densities for opacus_step, and nothing else")
    backend = jax.default_backend()
    parser.add_argument("-o", "--output", type=Path, default=Path(f"benchmarks/results/speed_{backend}.json"))
    given = parser.parse_args()
    if given.export is not None:
        return export(given.export)
    models = list(MODELS) if "all" in (given.model or ["all"]) else given.model
    load = os.getloadavg()[0]  # other work on the machine would show in every figure
    steps, samples = kept(given.output, models, "steps"), kept(given.output, models, "sampling")
    for name in models:
        for features in given.features or FEATURES[name]:
            work = MODELS[name](features)
            for batch in given.batches:
                steps.append(time_loops(work, given.rows, batch, given.rounds, given.steps))
                print(tell(steps[-1]), flush=True)
            samples.append(time_sampling(work, 65_536))
            print(f"{name}, {features} features: sampling {samples[-1]['rows_per_second']:,} rows/s", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    result = {"machine": describe_machine(), "load_at_start": load, "steps": steps, "sampling": samples}
    result["peak_resident_mebibytes"] = peak
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(result, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
