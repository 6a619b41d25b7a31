"""The report: one self-contained HTML page about an evaluation, or about several side by side."""

from sfumato.evaluation.report.file import NOT_PRIVATE, SUFFIXES, save_report
from sfumato.evaluation.report.page import report_page
from sfumato.evaluation.report.side_by_side import comparison_page

__all__ = ["NOT_PRIVATE", "SUFFIXES", "comparison_page", "report_page", "save_report"]
