"""Report: fits a method to 80 % of Adult, draws as many rows, and writes the report that the README shows.

    python -m benchmarks.report --folder private-adult

The folder gets the training and held-out rows, the release, the synthetic rows and ``report.html``; the time that
``sfumato report`` took goes to ``benchmarks/results/report.json``. Fitting is left out where a release is there.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.datasets import data_folder
from benchmarks.machine import describe_machine
from sfumato.table import read_file, write_file

SCHEMA = Path(__file__).parent / "schemas" / "adult.toml"
TARGET = Path("benchmarks/results/report.json")


def split(folder: Path, source: Path) -> dict[str, Path]:
    """The training and held-out rows of a fixed split, as files."""
    files = {name: folder / f"{name}.parquet" for name in ("train", "holdout")}
    table = read_file(source)
    order = np.random.default_rng(0).permutation(table.num_rows)
    cut = int(0.8 * table.num_rows)
    for name, places in (("train", order[:cut]), ("holdout", order[cut:])):
        write_file(table.take(np.sort(places)), files[name])
    return files


def sfumato(*arguments: str | Path) -> float:
    """Run the command line and return its wall time in seconds."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "sfumato.cli", *map(str, arguments)], check=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("private-adult"))
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--epsilon", default="1")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    files = split(given.folder, data_folder(given.data_dir) / "adult.parquet")
    model, synthetic = given.folder / "model.safetensors", given.folder / "synthetic.parquet"
    if not model.exists():
        sfumato("fit", files["train"], "--schema", SCHEMA, "--epsilon", given.epsilon, "--delta", "1e-6", "-o", model)
    sfumato("sample", model, "-n", "39000", "--force", "-o", synthetic)
    page = given.folder / "report.html"
    tables = ("--real", files["train"], "--synthetic", synthetic, "--holdout", files["holdout"])
    options = ("--schema", SCHEMA, "--model", model, "--target", "income", "--force")
    seconds = sfumato("report", *tables, *options, "-o", page)
    result = {"machine": describe_machine(), "seconds": seconds, "page_bytes": page.stat().st_size}
    TARGET.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
