"""How good a synthetic table is: metrics that declare themselves, and the report.

Everything here looks at private rows without noise, so its results are private too, and no part of a release.
"""

from sfumato.evaluation.catalogue import CATALOGUE, evaluate
from sfumato.evaluation.comparison import Comparison, Sample, sample_of
from sfumato.evaluation.evaluation import Evaluation
from sfumato.evaluation.metric import Measurement, Metric, Part, Score
from sfumato.evaluation.report import comparison_page, report_page, save_report

__all__ = [
    "CATALOGUE",
    "Comparison",
    "Evaluation",
    "Measurement",
    "Metric",
    "Part",
    "Sample",
    "Score",
    "comparison_page",
    "evaluate",
    "report_page",
    "sample_of",
    "save_report",
]
