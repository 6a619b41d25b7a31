"""The report of any table that a schema allows: drawn, well formed, and with every share accounted for."""

import math
from html.parser import HTMLParser

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from laws.strategies import schemas, valid_tables
from sfumato.evaluation.comparison import Comparison, sample_of
from sfumato.evaluation.evaluation import Evaluation
from sfumato.evaluation.metric import Metric, Part, Score
from sfumato.evaluation.report import report_page
from sfumato.evaluation.report.distribution import histogram_of, levels_of
from sfumato.schema import Continuous, Schema

VOID = {"meta", "link", "input"}
PLACES = {"d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "viewbox", "transform"}


class Balance(HTMLParser):
    """Whether every tag is closed in turn and every mark has a place, and how many drawings there are."""

    def __init__(self, page):
        super().__init__()
        self.open, self.faults, self.drawings = [], [], 0
        self.feed(page)
        self.faults += self.open

    def handle_starttag(self, tag, attrs):
        places = [value for key, value in attrs if key in PLACES]
        self.faults += [value for value in places if "nan" in value or "inf" in value]
        self.drawings += dict(attrs).get("class") in ("chart histogram", "chart bars")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


@st.composite
def comparisons(draw):
    schema = draw(schemas())
    real, synthetic = draw(valid_tables(schema)), draw(valid_tables(schema))
    assume(real.num_rows and synthetic.num_rows)
    return Comparison(schema=schema, real=sample_of(real, schema), synthetic=sample_of(synthetic, schema))


def evaluation_of(comparison):
    """Scores of each column and each pair."""
    names = [name for name, _ in comparison.schema.modelled]
    pairs = [(left, right) for place, right in enumerate(names) for left in names[:place]]
    shape = {"direction": "lower", "range": (0, 1), "reference": ""}
    columns = Metric(name="a", title="A", scope="column", **shape)
    together = Metric(name="b", title="B", scope="pair", **shape)
    return Evaluation(
        comparison=comparison,
        groups={
            "columns": (Score(metric=columns, parts=tuple(Part(of=(name,), value=0.1) for name in names)),),
            "pairs": (Score(metric=together, parts=tuple(Part(of=pair, value=0.1) for pair in pairs)),),
        },
    )


@settings(max_examples=60, deadline=None)
@given(comparisons())
def test_any_table_is_drawn(comparison):
    page = report_page(evaluation_of(comparison))
    page.encode()
    balance = Balance(page)
    assert balance.faults == []
    assert balance.drawings == len(comparison.schema.modelled)


@settings(max_examples=60, deadline=None)
@given(comparisons())
def test_every_share_is_accounted_for(comparison):
    sides = (comparison.real, comparison.synthetic)
    for name in comparison.numeric:
        found = histogram_of(comparison, name)
        for place, side in enumerate(sides):
            shares = (found.real, found.synthetic)[place]
            spikes = sum((spike.real, spike.synthetic)[place] for spike in found.spikes)
            present = 0.0 if side.missing(name).all() else 1.0
            total = float(shares.sum()) + spikes + found.outside[place]
            assert math.isclose(total, present, abs_tol=1e-9)
            assert found.zoomed or found.outside[place] <= 1e-9, "what is not drawn is told"
    for name in comparison.discrete:
        for shares in (levels_of(comparison, name).real, levels_of(comparison, name).synthetic):
            assert math.isclose(float(shares.sum()), 1.0, abs_tol=1e-9)


@pytest.mark.parametrize("ends", [(-8e307, 8e307), (-1e300, 1e300), (0.0, 1e-300), (-1e15, 1e15)], ids=str)
def test_bounds_of_any_size_can_be_drawn(ends):
    schema = Schema(columns={"x": Continuous(lower=ends[0], upper=ends[1])})
    for values in ([ends[0], ends[1]], [ends[0]] * 3, [ends[0], ends[0] / 2 + ends[1] / 2]):
        side = sample_of(pa.table({"x": values}), schema)
        comparison = Comparison(schema=schema, real=side, synthetic=side)
        balance = Balance(report_page(evaluation_of(comparison)))
        assert balance.drawings == 1 and balance.faults == []


def test_the_balance_sees_a_mark_without_a_place():
    assert Balance('<svg><rect x="nan"></rect></svg>').faults == ["nan"]
