"""Figures that Waites and Cummings 2021 print in their tables 1, 2, 4 and 5: average test log-likelihoods.

Table 2 prints negative log-likelihoods; their signs are turned here. Of table 2 the accountant is MA (RDP).
"""

from benchmarks.density import Task

_NF, _PRIVATE, _PUBLIC = "DP-NF", "DP-NF, private prior, 5", "DP-NF, public prior, 5"

PAPER = {
    "lifesci": Task(
        delta=1.52e-5,
        source="Table 1",
        published={
            0.5: {"DP-NF (GDP)": 8.90, "DP-NF (MA)": 7.37, "DP-MoG (MA)": 2.30, "DP-MoG (zCDP)": -8.93},
            1.0: {"DP-NF (GDP)": 9.41, "DP-NF (MA)": 8.67, "DP-MoG (MA)": 5.09, "DP-MoG (zCDP)": -0.16},
            2.0: {"DP-NF (GDP)": 10.20, "DP-NF (MA)": 9.32, "DP-MoG (MA)": 8.87, "DP-MoG (zCDP)": 2.95},
            4.0: {"DP-NF (GDP)": 10.77, "DP-NF (MA)": 10.09, "DP-MoG (MA)": 9.10, "DP-MoG (zCDP)": 5.48},
        },
    ),
    "pinwheel": Task(
        delta=3.70e-5,
        source="Table 2, signs turned",
        published={
            1.5: {_NF: -2.80, _PUBLIC: -3.05, _PRIVATE: -2.77, "DP-MoG, 5": -2.75, "DP-MoG, 10": -2.76},
            2.5: {_NF: -2.78, _PUBLIC: -2.40, _PRIVATE: -2.70, "DP-MoG, 5": -2.76, "DP-MoG, 10": -2.88},
            3.5: {_NF: -2.74, _PUBLIC: -1.91, _PRIVATE: -2.62, "DP-MoG, 5": -2.76, "DP-MoG, 10": -2.77},
            4.5: {_NF: -2.63, _PUBLIC: -1.87, _PRIVATE: -2.47, "DP-MoG, 5": -2.76, "DP-MoG, 10": -2.77},
        },
    ),
    "power": Task(
        delta=1.11e-5,
        source="Table 4",
        published={
            1.25: {"DP-NF (GDP)": -2.12, "DP-NF (MA)": -3.43, "DP-MoG (MA)": -2.88, "DP-MoG (zCDP)": -3.29},
            1.75: {"DP-NF (MA)": -2.47, "DP-MoG (MA)": -2.87, "DP-MoG (zCDP)": -3.10},
            2.25: {"DP-NF (MA)": -2.16, "DP-MoG (MA)": -2.86, "DP-MoG (zCDP)": -3.04},
        },
    ),
    "gowalla": Task(
        delta=1.11e-5,
        source="Table 4",
        published={
            2.25: {"DP-NF (GDP)": -0.44, "DP-NF (MA)": -1.81, "DP-MoG (MA)": -0.92, "DP-MoG (zCDP)": -0.87},
            3.5: {"DP-NF (MA)": -0.77, "DP-MoG (MA)": -0.92, "DP-MoG (zCDP)": -0.93},
            4.0: {"DP-NF (MA)": 0.47, "DP-MoG (MA)": -0.91, "DP-MoG (zCDP)": -0.93},
        },
    ),
    "half_moons": Task(
        delta=3.70e-5,
        source="Table 5",
        published={
            1.5: {"DP-NF (GDP)": -2.23, "DP-NF (MA)": -2.57, "DP-MoG (MA)": -2.59, "DP-MoG (zCDP)": -2.73},
            2.25: {"DP-NF (MA)": -2.43, "DP-MoG (MA)": -2.58, "DP-MoG (zCDP)": -2.60},
            3.0: {"DP-NF (MA)": -2.22, "DP-MoG (MA)": -2.58, "DP-MoG (zCDP)": -2.60},
        },
    ),
    "gaussians": Task(
        delta=3.70e-5,
        source="Table 5",
        published={
            1.5: {"DP-NF (GDP)": -2.45, "DP-NF (MA)": -2.73, "DP-MoG (MA)": -2.44, "DP-MoG (zCDP)": -2.42},
            2.25: {"DP-NF (MA)": -2.61, "DP-MoG (MA)": -2.45, "DP-MoG (zCDP)": -2.41},
            3.0: {"DP-NF (MA)": -2.45, "DP-MoG (MA)": -2.45, "DP-MoG (zCDP)": -2.43},
        },
    ),
}
"""By the name of the data set: delta, and the printed means by epsilon and method."""

COMPONENTS = {"lifesci": (3, 10), "pinwheel": (5, 10), "power": (10,), "gowalla": (11,), "half_moons": (3,)}
COMPONENTS |= {"gaussians": (8,)}
"""Components of DP-MoG as the paper has them; Life Science with ten as well."""

PRIORS = {"pinwheel": (5, 10), "lifesci": (10,), "power": (10,), "gowalla": (11,), "half_moons": (10,)}
PRIORS |= {"gaussians": (8,)}
"""Components of a private mixture prior: five as in table 2, or ten, or as many as DP-MoG has."""

PUBLIC_PRIORS = {"pinwheel": (5,)}
"""Components of a public mixture prior, as in table 2."""
