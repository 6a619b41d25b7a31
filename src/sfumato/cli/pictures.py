"""Pictures: curves drawn into a file. Matplotlib is an extra and is loaded only when a picture is asked for."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

from sfumato.cli.outputs import write_bytes
from sfumato.errors import ArgumentError

SUFFIXES = (".png", ".svg")

Curve = tuple[Sequence[float], Sequence[float]]
"""Places on the horizontal axis, and the heights there."""


def check_drawing() -> None:
    """Say before any work what a picture needs."""
    try:
        import matplotlib as mpl  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise ArgumentError(
            "A picture needs matplotlib: pip install 'sfumato[bench]' (or '.[bench]' in a checkout)."
        ) from None
    mpl.use("Agg")


def draw_curves(
    curves: Mapping[str, Curve],
    path: Path,
    *,
    title: str,
    labels: tuple[str, str],
    dashed: Sequence[str] = (),
    diagonal: bool = False,
) -> None:
    """Draw curves by their names into a .png or .svg file, in full or not at all; those that are no bound dashed."""
    check_drawing()
    from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    if diagonal:
        axes.plot([0, 1], [0, 1], color="0.8", linewidth=1)
    for name, (places, heights) in curves.items():
        axes.plot(places, heights, label=name, linewidth=1.5, linestyle="--" if name in dashed else "-")
    axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    stream = BytesIO()
    figure.savefig(stream, format=path.suffix.lower().lstrip("."), dpi=150)
    write_bytes(stream.getvalue(), path)
