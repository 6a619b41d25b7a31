"""Opacus step: a private step of the spline flow by Opacus, with its own per-sample gradients, and one without privacy.

    make bench-opacus
    python -m benchmarks.opacus_step --device cuda --batches 512 4096 -o benchmarks/results/speed_opacus_gpu.json

The flow is that of ``sfumato.models.flows.spline_flow`` without its fixed marginals: the same layers, masks and number
of parameters. ``--check FILE`` compares log densities in 64 bits on weights from ``benchmarks.speed --export FILE``.
Batches are Poisson draws by index on the device, so no data loader is timed. Needs PyTorch and Opacus alone, in an
environment of its own.

Ways to private gradients, all part of Opacus:

- ``hooks``: per-sample gradients by a sampler for each layer; the masked layer's is here; where Opacus has none (the
  linear flows), by its functional fallback.
- ``functorch``: per-sample gradients of every layer by the functional fallback.
- ``fast_clipping``: norms first, then a second backward pass. Ghost clipping proper refuses layers that are used more
  than once, as those of this flow are.
"""

import argparse
import json
import math
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus.grad_sample import (
    GradSampleModule,
    GradSampleModuleFastGradientClipping,
    register_grad_sampler,
)
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn import functional

FEATURES, BLOCKS, WIDTH, EMBEDDING, BINS, RANK = 15, 3, 64, 4, 8, 1
BOX, LIMIT, LEAST, REACH, EDGE = 5.0, 3.0, 1e-2, 0.9, 1e-6
UNIT_SLOPE = math.log(math.expm1(1 - LEAST))
BOUND, NOISE, LEARNING_RATE = 2.0, 10.0, 1e-3
MODES = ("hooks", "functorch", "fast_clipping")


class MaskedLinear(nn.Linear):
    """A linear layer whose weight is masked. The mask is no buffer: Opacus takes no layers with buffers."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__(mask.shape[1], mask.shape[0])
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight * self.mask, self.bias)


@register_grad_sampler(MaskedLinear)
def masked_linear_samples(layer: MaskedLinear, into: list[Tensor], back: Tensor) -> dict[Tensor, Tensor]:
    """Per-sample gradients of a masked layer: masked outer products."""
    weight = torch.einsum("no,ni->noi", back, into[0]).mul_(layer.mask)
    return {layer.weight: weight, layer.bias: back}


class LowRank(nn.Module):
    """The linear flow of one block; its log-determinant is one more column, so that hooks see one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(FEATURES))
        self.left = nn.Parameter(0.1 * torch.randn(FEATURES, RANK))
        self.right = nn.Parameter(torch.zeros(RANK, FEATURES))
        self.shift = nn.Parameter(torch.zeros(FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.exp(LIMIT * torch.tanh(self.log_scale / LIMIT))
        inner = self.right @ (self.left / scale[:, None])
        shrink = REACH / torch.sqrt(REACH**2 + torch.sum(inner**2))
        z = scale * x + (x @ self.right.T) @ (self.left * shrink).T + self.shift
        # Of rank one, so that the determinant of the inner matrix is its only entry.
        log_det = torch.sum(torch.log(scale)) + torch.log1p(inner[0, 0] * shrink)
        return torch.cat([z, log_det.expand(x.shape[0], 1)], dim=1)


class SplineFlow(nn.Module):
    """The log density of rows: three blocks of spline, linear flow and reversal; one network serves all blocks."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        first, middle, last = (torch.as_tensor(mask, device=device) for mask in masks())
        self.first, self.middle, self.last = MaskedLinear(first), MaskedLinear(middle), MaskedLinear(last)
        self.embedding = nn.Embedding(BLOCKS, EMBEDDING)
        self.context = nn.Linear(EMBEDDING, first.shape[0], bias=False)
        self.linear = nn.ModuleList([LowRank() for _ in range(BLOCKS)])
        for parameter in (self.last.weight, self.last.bias, self.first.bias, self.middle.bias):
            nn.init.zeros_(parameter)
        self.to(device)

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x[:, 0])
        for block, linear in enumerate(self.linear):
            which = torch.full((x.shape[0],), block, dtype=torch.long, device=x.device)
            h = torch.tanh(self.first(x) + self.context(self.embedding(which)))
            h = h + torch.tanh(self.middle(h))
            y, log_slope = spline(x, self.last(h).reshape(x.shape[0], FEATURES, -1))
            found = linear(y)
            x = found[:, :-1].flip(1)
            total = total + log_slope.sum(1) + found[:, -1]
        return total - 0.5 * torch.sum(x**2, dim=1) - 0.5 * FEATURES * math.log(2 * math.pi)


def masks() -> list[np.ndarray]:
    """The masks of the three layers, from degrees."""
    units = -(-WIDTH // (FEATURES - 1))
    inputs, hidden = np.arange(1, FEATURES + 1), np.repeat(np.arange(1, FEATURES), units)
    last = np.repeat(inputs, 3 * BINS - 1)[:, None] > hidden
    return [mask.astype(np.float32) for mask in (hidden[:, None] >= inputs, hidden[:, None] >= hidden, last)]


def grid(raw: Tensor) -> Tensor:
    """Knots from raw shares of the box."""
    shares = LEAST + (1 - LEAST * BINS) * torch.softmax(raw, dim=-1)
    inner = 2 * BOX * torch.cumsum(shares[..., :-1], dim=-1) - BOX
    return functional.pad(functional.pad(inner, (1, 0), value=-BOX), (0, 1), value=BOX)


def spline(x: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
    """The rational-quadratic spline with straight tails, and the log of its slope (Durkan et al. 2019)."""
    raw = LIMIT * torch.tanh(parameters[..., : 2 * BINS] / LIMIT)
    xs, ys = grid(raw[..., :BINS]), grid(raw[..., BINS:])
    steep = functional.pad(parameters[..., 2 * BINS :], (1, 1))
    point = x.clamp(-BOX, BOX)
    place = torch.sum(point[..., None] >= xs[..., 1:-1].detach(), dim=-1, keepdim=True)
    take = lambda values, index: torch.gather(values, -1, index)[..., 0]
    slope = lambda raw: functional.softplus(LIMIT * torch.tanh(raw / LIMIT) + UNIT_SLOPE) + LEAST
    left, bottom, start, end = (
        take(xs, place),
        take(ys, place),
        slope(take(steep, place)),
        slope(take(steep, place + 1)),
    )
    width, height = take(xs, place + 1) - left, take(ys, place + 1) - bottom
    mean = height / width
    share = (point - left) / width
    both = share * (1 - share)
    under = mean + (start + end - 2 * mean) * both
    y = bottom + height * (mean * share**2 + start * both) / under
    over = end * share**2 + 2 * mean * both + start * (1 - share) ** 2
    log_slope = 2 * torch.log(mean) + torch.log(over) - 2 * torch.log(under)
    inside = x.abs() < BOX
    return torch.where(inside, y, x), torch.where(inside, log_slope, 0.0)


def dequantise(low: Tensor, width: Tensor) -> Tensor:
    """Real features of a point drawn uniformly in each cell."""
    return torch.special.ndtri((low + torch.rand_like(low) * width).clamp(EDGE, 1 - EDGE))


def table(num_rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The same kind of rows as ``benchmarks.speed``: cells of the unit interval."""
    low = np.random.default_rng(0).beta(2, 5, size=(num_rows, FEATURES)).astype(np.float32)
    low_on = torch.as_tensor(low, device=device)
    return low_on, torch.full_like(low_on, 0.01)


class NegativeMean:
    """A loss for the two passes of fast clipping, which asks for one with a choice of reduction."""

    reduction = "mean"

    def __call__(self, log_density: Tensor, _: Any = None) -> Tensor:
        return -log_density if self.reduction == "none" else -log_density.mean()


def private_parts(flow: nn.Module, mode: str, batch: float, noise: float = NOISE) -> tuple[Any, Any, Any]:
    """The wrapped flow, its optimiser and its loss, as Opacus's engine would put them together."""
    adam = torch.optim.Adam(flow.parameters(), lr=LEARNING_RATE)
    settings = {"noise_multiplier": noise, "max_grad_norm": BOUND, "expected_batch_size": batch}
    if mode == "fast_clipping":
        model = GradSampleModuleFastGradientClipping(flow, max_grad_norm=BOUND, use_ghost_clipping=False)
        optimiser = DPOptimizerFastGradientClipping(adam, **settings)
        criterion = DPLossFastGradientClipping(model, optimiser, NegativeMean(), loss_reduction="mean")
        return model, optimiser, lambda values: criterion(values, None)
    model = GradSampleModule(flow, force_functorch=mode == "functorch")
    return model, DPOptimizer(adam, **settings), NegativeMean()


def private_step(mode: str, columns: tuple[Tensor, Tensor], batch: int) -> Callable[[], None]:
    """One step: Poisson draw, per-sample gradients, flat clipping, Gaussian noise, Adam."""
    num_rows, device = columns[0].shape[0], columns[0].device
    model, optimiser, loss = private_parts(SplineFlow(device), mode, batch)

    def step() -> None:
        index = torch.nonzero(torch.rand(num_rows, device=device) < batch / num_rows)[:, 0]
        loss(model(dequantise(*(column[index] for column in columns)))).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)  # at the end, so that no gradient of a row outlives the step

    return step


def plain_step(columns: tuple[Tensor, Tensor], batch: int) -> Callable[[], None]:
    """The same without privacy: a batch by index, the mean gradient, Adam."""
    num_rows, device = columns[0].shape[0], columns[0].device
    flow = SplineFlow(device)
    adam = torch.optim.Adam(flow.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        index = torch.randint(num_rows, (batch,), device=device)
        (-flow(dequantise(*(column[index] for column in columns))).mean()).backward()
        adam.step()
        adam.zero_grad(set_to_none=True)

    return step


def seconds(step: Callable[[], None], steps: int, device: torch.device) -> float:
    """Seconds a step, on a device that works behind the program's back too."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter() - start) / steps


def temporary_bytes(step: Callable[[], None], device: torch.device) -> int:
    """The most memory that one step holds beyond what it found: from the allocator, or from its record on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    sizes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(0, int(np.max(np.cumsum(sizes))))


def time_steps(num_rows: int, batch: int, rounds: int, steps: int, device: torch.device) -> dict[str, Any]:
    """Milliseconds of every mode and of the step without privacy, in turn; the fastest mode is the one compared."""
    columns = table(num_rows, device)
    made = {mode: private_step(mode, columns, batch) for mode in MODES} | {"plain": plain_step(columns, batch)}
    for step in made.values():
        seconds(step, 2, device)
    times: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(rounds):
        for name, step in made.items():
            times[name].append(seconds(step, steps, device))
    each = {name: statistics.median(values) for name, values in times.items()}
    # Last, since a profiler may leave the program slower than it found it.
    memory = {name: temporary_bytes(step, device) for name, step in made.items()}
    best = min(MODES, key=lambda mode: each[mode])
    return {
        "model": "hflow",
        "features": FEATURES,
        "parameters": sum(parameter.numel() for parameter in SplineFlow(device).parameters()),
        "rows": num_rows,
        "batch": batch,
        "milliseconds": {name: round(1e3 * value, 3) for name, value in each.items()},
        "fastest": best,
        "private_over_plain": round(each[best] / each["plain"], 2),
        "temporary_bytes": memory,
    }


def put(flow: SplineFlow, given: Any) -> None:
    """Put weights from an export of ``benchmarks.speed`` into the flow."""
    names = {"first": flow.first, "middle": flow.middle, "last": flow.last}
    found = {layer.weight: given[name] for name, layer in names.items()}
    found |= {layer.bias: given[f"{name}_bias"] for name, layer in names.items()}
    found |= {flow.embedding.weight: given["embedding"], flow.context.weight: given["context"]}
    for block, linear in enumerate(flow.linear):
        found |= {getattr(linear, name): given[name][block] for name in ("log_scale", "left", "right", "shift")}
    with torch.no_grad():
        for parameter, value in found.items():
            parameter.copy_(torch.as_tensor(value).reshape(parameter.shape))


def density_difference(path: Path, device: torch.device) -> float:
    """The largest difference of log densities from those exported with the weights."""
    given = np.load(path)
    flow = SplineFlow(device).double()
    put(flow, given)
    with torch.no_grad():
        found = flow(torch.as_tensor(given["features"], device=device)).cpu().numpy()
    difference = float(np.max(np.abs(found - given["log_density"])))
    if not difference < 1e-4:
        raise SystemExit(f"The log densities differ by up to {difference:.2g}.")
    return difference


def shaken(device: torch.device) -> SplineFlow:
    """A flow whose weights are all away from their start."""
    torch.manual_seed(0)
    flow = SplineFlow(device)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return flow


def gradient_difference(mode: str, device: torch.device, rows: int = 8) -> float:
    """How far Opacus's clipped sum is from that of one backward pass a row, relative to its norm, in 64 bits."""
    flow = shaken(device).double()
    features = dequantise(*table(rows, device)).double()
    expected = features.new_zeros(sum(parameter.numel() for parameter in flow.parameters()))
    for row in features:
        gradients = torch.autograd.grad(-flow(row[None])[0], list(flow.parameters()))
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        expected += flat * min(1.0, BOUND / (float(flat.norm()) + 1e-6))
    model, optimiser, loss = private_parts(flow, mode, 1.0, noise=0.0)
    optimiser.zero_grad(set_to_none=True)
    loss(model(features)).backward()
    if mode == "fast_clipping":
        optimiser.accumulate()
    else:
        optimiser.clip_and_accumulate()
    found = torch.cat([parameter.summed_grad.flatten() for parameter in optimiser.params])
    difference = float((found - expected).norm() / expected.norm())
    if not difference < 1e-4:
        raise SystemExit(f"The clipped sum of {mode} is off by {difference:.2g} of its norm.")
    return difference


def describe_machine(device: torch.device) -> dict[str, Any]:
    """The machine and the versions, under the names that ``benchmarks.machine`` uses."""
    gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(0) if gpu else "cpu",
        "backend": "gpu" if gpu else "cpu",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "opacus": version("opacus"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--batches", nargs="*", type=int, default=[512, 4096])
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--check", type=Path, help="weights and log densities from benchmarks.speed --export")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    warnings.filterwarnings("ignore", message="In CPU autocast")
    device, load = torch.device(given.device), os.getloadavg()[0]
    checks: dict[str, Any] = {"clipped_sum": {mode: gradient_difference(mode, device) for mode in MODES}}
    if given.check is not None:
        checks["log_density"] = density_difference(given.check, device)
    print(f"differences: {checks}", flush=True)
    steps = []
    for batch in given.batches:
        steps.append(time_steps(given.rows, batch, given.rounds, given.steps, device))
        times = ", ".join(f"{name} {value} ms" for name, value in steps[-1]["milliseconds"].items())
        memory = ", ".join(f"{name} {value / 2**20:.0f}" for name, value in steps[-1]["temporary_bytes"].items())
        print(f"batch {batch}: {times}; temporary memory in MiB: {memory}", flush=True)
    backend = "gpu" if given.device == "cuda" else "cpu"
    output = given.output or Path(f"benchmarks/results/speed_opacus_{backend}.json")
    output.parent.mkdir(parents=True, exist_ok=True)
    result = {"machine": describe_machine(device), "load_at_start": load, "differences": checks, "steps": steps}
    output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
