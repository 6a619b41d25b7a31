"""What the DP-TBART paper reports: its tables 2 and 3, and what this benchmark measures beside them.

Reference: Castellon, Gopal, Bloniarz, Rosenberg 2023, "DP-TBART: A Transformer-based Autoregressive Model for
Differentially Private Tabular Data Generation". Epsilon is 1 and delta 1e-9; ± is the standard error.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A metric of the benchmark: its head in a table, whether more is better, and what it is."""

    head: str
    higher: bool
    about: str


METRICS: dict[str, Shown] = {
    "ks": Shown(
        head="KS",
        higher=True,
        about="one minus the Kolmogorov-Smirnov statistic against the training rows, mean over numeric columns",
    ),
    "cs": Shown(
        head="CS",
        higher=True,
        about="p-value of a chi-square test on frequencies against the training rows (as old SDMetrics computed it: "
        "near 1 for nearly everything), mean over categories",
    ),
    "det": Shown(
        head="DET",
        higher=True,
        about="one minus the AUROC of XGBoost that tells held-out rows from as many synthetic ones, mean over three "
        "folds; 0.5 is best",
    ),
    "clf": Shown(
        head="ML (CLF)",
        higher=True,
        about="F1 on held-out rows of a decision tree trained on synthetic rows: of two classes that of the rarer one, "
        "else the mean over classes",
    ),
    "reg": Shown(
        head="ML (REG)", higher=True, about="R² on held-out rows of linear regression trained on synthetic rows"
    ),
    "det_binned": Shown(
        head="DET binned",
        higher=True,
        about="DET after the numbers of both sides are put in 20 bins of equal width: it judges the model, not how "
        "numbers are written",
    ),
    "tv2": Shown(
        head="TV 2-way",
        higher=False,
        about="total variation against the training rows, mean over all pairs of columns, numbers in those 20 bins",
    ),
    "auroc": Shown(
        head="XGB AUROC",
        higher=True,
        about="AUROC on held-out rows of XGBoost trained on synthetic rows; of several classes the mean of each "
        "against the rest",
    ),
    "r2": Shown(head="XGB R²", higher=True, about="R² on held-out rows of XGBoost trained on synthetic rows"),
    "det_train": Shown(
        head="DET train",
        higher=True,
        about="DET of all training rows against all synthetic ones: more rows to learn from, so a harder test",
    ),
}
"""Every metric, the paper's five first."""

PAPER: dict[str, dict[str, str]] = {
    "AIM": {"ks": "0.886 ± 0.001", "cs": "0.997 ± 0.001", "det": "0.260 ± 0.002", "clf": "0.594 ± 0.002"}
    | {"reg": "0.132 ± 0.057"},
    "DP-TBART": {"ks": "0.847 ± 0.001", "cs": "0.978 ± 0.002", "det": "0.172 ± 0.004", "clf": "0.554 ± 0.005"}
    | {"reg": "-0.264 ± 0.022"},
    "DPCTGAN": {"ks": "0.591 ± 0.006", "cs": "0.831 ± 0.01", "det": "0.031 ± 0.001", "clf": "0.412 ± 0.012"}
    | {"reg": "-2.83e4 ± 2.31e4"},
    "DP-MERF": {"ks": "0.505 ± 0.006", "cs": "0.532 ± 0.003", "det": "0.0 ± 0.0", "clf": "0.491 ± 0.014"}
    | {"reg": "-4.2e20 ± 2.5e20"},
    "DP-HFlow": {"ks": "0.676 ± 0.004", "cs": "0.622 ± 0.008", "det": "0.034 ± 0.004", "clf": "0.543 ± 0.019"}
    | {"reg": "-0.603 ± 0.345"},
    "DP-NTK": {"ks": "0.349 ± 0.001", "cs": "0.438 ± 0.006", "det": "0.0 ± 0.0", "clf": "0.502 ± 0.011"}
    | {"reg": "-5.83e16 ± 4.76e16"},
}
"""Table 2 as printed: averages over its ten data sets."""

DYCK_PAPER = {"AIM": 0.517, "DP-TBART": 0.804}
"""Table 3: the share of valid strings of Dyck-20."""
