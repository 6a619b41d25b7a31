"""What the DP-HFlow paper reports: its tables 1 to 3, with the best other method of each cell.

Reference: Lee, Kim, Jeong, Ro 2022, "Differentially Private Normalizing Flows for Synthetic Tabular Data Generation".
The paper does not say what its ± spans. Its epsilon is 1 and its delta 1e-5.
"""

from typing import Any

F1, AUROC, PRECISION = "utility_macro_f1", "utility_auroc", "utility_average_precision"
RMSE, MAE = "kendall_tau_rmse", "kendall_tau_mae"

METRICS: dict[str, tuple[str, ...]] = {
    "adult": (F1, AUROC, PRECISION),
    "census": (F1, AUROC, PRECISION),
    "covertype": (RMSE, MAE, F1),
    "intrusion": (F1,),
}
"""What the paper's tables show of each data set."""


def _cell(private: str, other: str, open_: str, other_open: str, real: str) -> dict[str, Any]:
    """One line of tables 2 and 3; texts are as printed, and names of methods come after a comma."""
    return {
        "real": real,
        "private": {"DP-HFlow": private, "best other": other},
        "open": {"DP-HFlow": open_, "best other": other_open},
    }


PAPER: dict[tuple[str, str], dict[str, Any]] = {
    ("covertype", RMSE): {"private": {"DP-HFlow": "0.0717", "best other": "0.1863, DP-MERF"}},
    ("covertype", MAE): {"private": {"DP-HFlow": "0.0482", "best other": "0.1342, DP-MERF"}},
    ("adult", F1): _cell("0.56±0.07", "0.46±0.07, DP-CGAN", "0.75±0.01", "0.74±0.02, CTGAN", "0.79±0.02"),
    ("census", F1): _cell("0.52±0.03", "0.48±0.14, DP-MERF", "0.70±0.04", "0.67±0.04, CTGAN", "0.75±0.01"),
    ("covertype", F1): _cell("0.22±0.03", "0.31±0.05, DP-MERF", "0.49±0.04", "0.29±0.05, DP-MERF", "0.77±0.16"),
    ("intrusion", F1): _cell("0.40±0.03", "0.36±0.05, DP-MERF", "0.46±0.06", "0.54±0.05, CTGAN", "0.86±0.07"),
    ("adult", AUROC): _cell("0.75±0.05", "0.63±0.09, DP-MERF", "0.87±0.02", "0.86±0.02, CTGAN", "0.90±0.02"),
    ("census", AUROC): _cell("0.78±0.06", "0.68±0.13, DP-MERF", "0.91±0.04", "0.89±0.04, CTGAN", "0.93±0.02"),
    ("adult", PRECISION): _cell("0.50±0.07", "0.34±0.08, DP-MERF", "0.70±0.05", "0.66±0.04, CTGAN", "0.77±0.04"),
    ("census", PRECISION): _cell("0.17±0.05", "0.15±0.07, DP-MERF", "0.49±0.08", "0.43±0.07, CTGAN", "0.59±0.06"),
}
"""The printed figures by data set and metric."""

_NAMES = ("DP-CGAN", "GS-WGAN", "DP-MERF")
_PRINTED: dict[tuple[str, str], tuple[tuple[str, str, str], str | None, str | None]] = {
    ("covertype", RMSE): (("0.4434", "0.2058", "0.1863"), None, None),
    ("covertype", MAE): (("0.3549", "0.1396", "0.1342"), None, None),
    ("adult", F1): (("0.46±0.07", "0.42±0.09", "0.37±0.15"), "0.74±0.02", "0.41±0.16"),
    ("census", F1): (("0.45±0.09", "0.44±0.13", "0.48±0.14"), "0.67±0.04", "0.50±0.14"),
    ("covertype", F1): (("0.15±0.03", "0.11±0.03", "0.31±0.05"), "0.22±0.04", "0.29±0.05"),
    ("intrusion", F1): (("0.19±0.09", "0.13±0.08", "0.36±0.05"), "0.54±0.05", "0.38±0.06"),
    ("adult", AUROC): (("0.53±0.14", "0.48±0.11", "0.63±0.09"), "0.86±0.02", "0.65±0.10"),
    ("census", AUROC): (("0.50±0.16", "0.56±0.20", "0.68±0.13"), "0.89±0.04", "0.69±0.11"),
    ("adult", PRECISION): (("0.28±0.09", "0.25±0.05", "0.34±0.08"), "0.66±0.04", "0.39±0.10"),
    ("census", PRECISION): (("0.07±0.03", "0.10±0.06", "0.15±0.07"), "0.43±0.07", "0.15±0.06"),
}
"""Private figures of the three compared methods, then CTGAN and DP-MERF without privacy."""

OTHERS: dict[str, dict[tuple[str, str], dict[str, str]]] = {
    name: {key: {"private": private[place]} for key, (private, _, _) in _PRINTED.items()}
    for place, name in enumerate(_NAMES)
}
OTHERS["CTGAN"] = {key: {"open": ctgan} for key, (_, ctgan, _) in _PRINTED.items() if ctgan is not None}
for _key, (_, _, _merf) in _PRINTED.items():
    if _merf is not None:
        OTHERS["DP-MERF"][_key]["open"] = _merf
"""The printed figures of every other method of tables 1 to 3, by its name there, data set and metric."""

NAMED = {"merf": "DP-MERF", "dp-cgan": "DP-CGAN", "gs-wgan": "GS-WGAN", "dp-ctgan": "CTGAN"}
"""Methods of the registry by their names in the paper; `dp-ctgan` is CTGAN where it is fitted without privacy."""
