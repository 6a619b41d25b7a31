"""The report: one self-contained HTML page about an evaluation, or about several side by side."""

from sfumato.evaluation.report.page import report_page
from sfumato.evaluation.report.side_by_side import comparison_page

__all__ = ["comparison_page", "report_page"]
