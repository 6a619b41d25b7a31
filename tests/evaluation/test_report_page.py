"""The report as a text: complete, closed, escaped, repeatable, and honest about what failed or was sampled."""

import base64
import hashlib
import itertools
import math
import os
import re
import time
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from browser.cases import HOSTILE_NAMES, hostile, metric, ordinary, wide
from sfumato.errors import ArgumentError
from sfumato.evaluation.comparison import Comparison, sample_of
from sfumato.evaluation.evaluation import Evaluation, measure
from sfumato.evaluation.metric import Part, Score
from sfumato.evaluation.metrics import density
from sfumato.evaluation.report import comparison_page, report_page
from sfumato.evaluation.report.charts.heatmap import SHADES, shade
from sfumato.evaluation.report.charts.svg import round_ticks, value_ticks
from sfumato.evaluation.report.distribution import histogram_of, levels_of
from sfumato.evaluation.report.markup import element, name, short, text, visible
from sfumato.evaluation.report.numbers import compact, distance, score_text
from sfumato.evaluation.report.side_by_side import best
from sfumato.privacy import Adjacency, Budget, Ledger, Randomness
from sfumato.privacy.certificate import certify
from sfumato.privacy.events import GaussianSum
from sfumato.schema import Categorical, Date, Integer, Schema, draft

DATA = Path(os.environ.get("SFUMATO_DATA", Path(__file__).parents[3] / "shared" / "data"))
VOID = {"meta", "link", "input"}


class Outline(HTMLParser):
    """The elements of a page in order; it complains of a tag that is closed out of turn."""

    def __init__(self, page):
        super().__init__()
        self.open, self.found, self.faults = [], [], []
        self.feed(page)
        self.faults += [f"never closed: {tag}" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"closed out of turn: {tag}")

    def all(self, tag, class_=""):
        wanted = [attrs for kind, attrs in self.found if kind == tag]
        return [attrs for attrs in wanted if not class_ or class_ in (attrs.get("class") or "").split()]


def certificate(*, private=True):
    ledger = Ledger(Budget(epsilon=2.0, delta=1e-6), Adjacency())
    ledger.charge(GaussianSum(noise_multiplier=6.0), purpose="marginals")
    source = Randomness.from_os() if private else Randomness.from_seed(1)
    return certify(ledger, source, {"method": "<i>maf</i>", "settings": {"steps": 10}})


@pytest.fixture(scope="module")
def page():
    return report_page(ordinary(), made_at="On a Monday")


def test_the_page_is_well_formed_and_has_every_section(page):
    outline = Outline(page)
    assert outline.faults == []
    assert page.startswith("<!DOCTYPE html>")
    sections = [attrs["id"] for attrs in outline.all("section")]
    assert sections == [
        *("overview", "columns", "pairs", "detection", "utility", "membership"),
        *("certificate", "reading"),
    ]
    ids = [attrs["id"] for _, attrs in outline.found if "id" in attrs]
    assert len(ids) == len(set(ids)), "an anchor stands for one element"
    links = [attrs["href"] for attrs in outline.all("a")]
    assert links and all(link.startswith("#") and link[1:] in ids for link in links)


def test_the_outline_sees_a_broken_page():
    assert Outline("<div><p></div></p>").faults and Outline("<div>").faults


def test_the_warning_is_the_first_thing_said_and_the_last(page):
    body = re.sub(r"<(svg|a)\b.*?</\1>", "", page[page.index("<body>") :], count=2, flags=re.DOTALL)
    assert re.sub("<[^>]*>", " ", body).split()[:6] == ["Private.", "It", "was", "computed", "on", "private"]
    footer = page[page.index("<footer>") :]
    assert "without noise" in footer and "Do not publish it" in footer
    assert "@bottom-center" in page, "on paper it is at the foot of each sheet"


def test_the_page_is_the_same_for_the_same_evaluation(page):
    assert report_page(ordinary(), made_at="On a Monday") == page
    assert "On a Monday" in page and "On a Monday" not in report_page(ordinary())


def test_nothing_but_its_own_style_and_script_may_run(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#x27;", "'")
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
        assert len(blocks) == 1
        digest = base64.b64encode(hashlib.sha256(blocks[0].encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy
    outline = Outline(page)
    assert not [attrs for _, attrs in outline.found if "style" in attrs], "the policy would refuse it"
    assert not [key for _, attrs in outline.found for key in attrs if key.startswith("on")]
    fetched = [
        attrs.get("src") or attrs.get("href") for tag, attrs in outline.found if tag in ("link", "img", "script")
    ]
    assert [each for each in fetched if each] == ["data:,"]
    assert "http" not in re.sub('http-equiv="', "", page), "no address of the network is on the page"


def test_every_column_has_a_drawing_that_says_what_it_is(page):
    outline = Outline(page)
    cards = outline.all("article", "column")
    assert [card["data-name"] for card in cards] == [n for n, _ in ordinary().comparison.schema.modelled]
    drawings = outline.all("svg", "histogram") + outline.all("svg", "bars")
    assert len(drawings) == len(cards) == 9
    for drawing in outline.all("svg", "chart"):
        assert drawing["role"] == "img" and drawing["aria-label"]
    assert all("scope" in head for head in outline.all("th"))


def test_what_failed_was_sampled_or_does_not_apply_is_said(page):
    assert "1 of 9 failed" in page and "constant column" in page
    assert "sampled: 10 of 400 real rows" in page
    assert "does not apply" in page
    assert "LinAlgError" in page
    assert "A smoke test proves nothing" in page
    assert "lower is better" in page and "a perfect copy has 0.5" in page


def test_a_score_without_failures_does_not_speak_of_any():
    made = ordinary()
    good = Score(metric=metric("fine", "column"), parts=(Part(of=("age",), value=0.5),))
    tile = report_page(replace(made, groups={"columns": (good,)})).split('id="tile-columns"')[1].split("</article>")[0]
    assert "failed" not in tile and "0.500" in tile


def test_hostile_names_are_text_and_nothing_else():
    page = report_page(hostile(), title=HOSTILE_NAMES[0], made_at=HOSTILE_NAMES[1])
    outline = Outline(page)
    assert outline.faults == []
    assert len(outline.all("script")) == 1 and not outline.all("img")
    assert not [key for _, attrs in outline.found for key in attrs if key.startswith("on")]
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page)
    page.encode()
    assert visible("a\u202eb\ud800") == "a\ufffdb\ufffd"


def test_the_check_of_hostile_names_sees_a_name_that_was_not_escaped():
    broken = report_page(hostile()).replace(text(HOSTILE_NAMES[0]), HOSTILE_NAMES[0], 1)
    assert len(Outline(broken).all("script")) == 2


def test_markup_escapes_content_names_and_attributes():
    assert name("<b>") == "<bdi>&lt;b&gt;</bdi>"
    assert element("p", "x", title='"><b>') == '<p title="&quot;&gt;&lt;b&gt;">x</p>'
    assert element("details", open=True, id=None) == "<details open></details>"
    assert len(short("y" * 300, 20)) == 20


def test_a_wide_table_shows_the_worst_sixty_and_says_so():
    page = report_page(wide(70))
    assert "The map shows 60 of 70 columns" in page
    assert len(page.encode()) < 1_500_000
    assert "The map shows" not in report_page(wide(60))


def test_the_worst_pairs_come_first():
    page = report_page(ordinary())
    table = page.split('<table class="worst">')[1].split("</table>")[0]
    values = [float(value) for value in re.findall(r'<td class="number">([\d.]+)</td></tr>', table)]
    assert len(values) == 15 and values == sorted(values, reverse=True)


def test_the_certificate_is_told_in_words():
    page = report_page(ordinary(), certificate=certificate())
    section = page.split('<section id="certificate"')[1].split("</section>")[0]
    for words in ("for release", "one row, added or removed", "marginals", "Gaussian noise of 6", "settings.steps"):
        assert words in section
    assert "&lt;i&gt;maf" in section and "Assumptions" in section and "dp-accounting" in section
    assert 'class="alarm"' not in page


def test_a_certificate_without_protection_is_loud():
    page = report_page(ordinary(), certificate=certificate(private=False))
    assert page.count('class="alarm"') == 2, "in the overview and in its section"
    assert "NOT FOR RELEASE" in page and "infinite (no protection)" in page


def test_without_a_release_the_page_says_how_to_give_one(page):
    assert "No release was given" in page and "--model" in page


class Likelihood:
    """A release that finds small heights unlikely."""

    def __init__(self, stated):
        self.certificate = stated

    def log_prob(self, table):
        return np.asarray(table["height"])


def with_anomalies(release):
    """The ordinary comparison with anomalies that are mostly small."""
    made = ordinary()
    heights = np.where(np.arange(400) % 4 > 0, 0.3, np.asarray(made.comparison.real.numbers["height"]))
    table = made.comparison.real.table
    table = table.set_column(table.column_names.index("height"), "height", pa.array(heights))
    comparison = replace(
        made.comparison, release=release, anomalies=sample_of(table, made.comparison.schema, what="anomalies")
    )
    return measure(comparison, {"density": density.MEASUREMENTS})


def test_anomalies_have_a_curve():
    made = with_anomalies(Likelihood(certificate()))
    page = report_page(made)
    outline = Outline(page)
    assert outline.faults == [] and len(outline.all("svg", "curve")) == 1
    path = re.search(r'class="chart curve".*?<path class="line-synthetic" d="M([^"]*)"', page, flags=re.DOTALL)[1]
    points = [tuple(map(float, point.split())) for point in path.split("L")]
    assert points[0] == (46.0, 260.0) and points[-1] == (290.0, 8.0), "from no alarm to all"
    assert all(b[0] >= a[0] and b[1] <= a[1] for a, b in itertools.pairwise(points))
    assert "Status" in page, "the certificate of the release is found without being named"


def test_without_a_release_the_likelihood_says_what_it_needs():
    page = report_page(with_anomalies(None))
    assert "Needs a release that gives likelihoods: --model." in page
    assert not Outline(page).all("svg", "curve")


# --- the shares that are drawn --------------------------------------------------------------------------------


def compared(column, real, synthetic):
    schema = Schema(columns={"x": column})
    real, synthetic = (sample_of(pa.table({"x": values}), schema) for values in (real, synthetic))
    return Comparison(schema=schema, real=real, synthetic=synthetic)


def test_shares_in_spikes_bins_and_outside_make_one():
    for column in ordinary().comparison.numeric:
        found = histogram_of(ordinary().comparison, column)
        for place, side in enumerate(("real", "synthetic")):
            spikes = sum(getattr(spike, side) for spike in found.spikes)
            assert math.isclose(getattr(found, side).sum() + spikes + found.outside[place], 1, abs_tol=1e-9), column


def test_a_value_of_most_rows_is_a_spike_and_the_rest_is_zoomed():
    random = np.random.default_rng(5)
    real = np.where(random.random(2_000) < 0.92, 0, random.integers(100, 9_000, 2_000))
    found = histogram_of(compared(Integer(lower=0, upper=100_000), real, real + 0), "x")
    assert [spike.value for spike in found.spikes] == [0.0]
    assert found.spikes[0].real == pytest.approx((real == 0).mean())
    assert found.zoomed and found.view[1] < 10_000


def test_an_even_column_has_no_spike_and_no_zoom():
    values = np.arange(1_000) % 100
    found = histogram_of(compared(Integer(lower=0, upper=99), values, values), "x")
    assert found.spikes == () and not found.zoomed
    assert np.allclose(found.real, found.real[0]), "bins of equal numbers of values, so that there are no teeth"


def test_levels_are_the_most_frequent_of_either_side_and_the_rest():
    levels = tuple(f"level {place}" for place in range(30))
    real = [levels[place % 25] for place in range(100)]
    found = levels_of(compared(Categorical(levels=levels, nullable=True), [*real, None], ["level 29"] * 50), "x")
    assert "level 29" in found.names, "what only the synthetic rows have is not hidden"
    assert found.names[-2:] == ("the other 10 levels", "missing")
    assert found.real.sum() == pytest.approx(1) and found.synthetic.sum() == pytest.approx(1)


def test_ordered_levels_keep_their_order():
    made = compared(Categorical(levels=("low", "middle", "high"), ordered=True), ["high"] * 5 + ["low"], ["high"])
    assert levels_of(made, "x").names == ("low", "middle", "high")


def test_ticks_are_round_and_inside():
    for low, high in ((0, 1), (17, 90), (-0.003, 0.004), (0, 1_484_705), (5, 5)):
        ticks = round_ticks(low, high)
        assert ticks and len(ticks) <= 6 and all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)
    dates = Date(lower=date(1950, 1, 1), upper=date(2020, 1, 1))
    assert [words for _, words in value_ticks(-7_305, 18_262, dates)] == ["1960", "1980", "2000", "2020"]
    months = [words for _, words in value_ticks(0, 200, dates)]
    assert months[0] == "Jan 1970" and len(months) >= 3
    assert value_ticks(0, 20, dates)[0][1] == "01 Jan"


def test_shades_grow_darker_with_the_size():
    tones = [shade(value, 1.0) for value in np.linspace(0, 1, 50)]
    assert tones == sorted(tones) and tones[0] == 0 and tones[-1] == SHADES - 1
    css = files("sfumato.evaluation.report").joinpath("style.css").read_text()
    colours = re.findall(r"--h(\d): #(\w{6})", css)
    for start in range(0, len(colours), SHADES):
        light = [_luminance(colour) for _, colour in colours[start : start + SHADES]]
        assert light in (sorted(light), sorted(light, reverse=True)), "one direction, so that it can be read in grey"


def _luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_numbers_for_people():
    assert score_text(0.12345) == "0.123" and score_text(-0.0001) == "0.000" and score_text(None) == "–"
    assert compact(12_345_678) == "12.35M" and compact(0) == "0"
    assert distance(metric("x", direction="lower", ideal=0.5), 0.4) == pytest.approx(0.1)


# --- side by side ---------------------------------------------------------------------------------------------


def scored(made, value):
    score = Score(metric=metric("f1"), parts=() if value is None else (Part(of=("table",), value=value),))
    return Evaluation(comparison=made.comparison, groups={"utility": (score,), "columns": made.groups["columns"]})


def test_the_best_release_is_marked_by_a_word():
    made = ordinary()
    page = comparison_page({"one": scored(made, 0.5), "two <b>": scored(made, 0.7), "three": scored(made, None)})
    assert Outline(page).faults == []
    row = page.split("<code>f1</code>")[1].split("</tr>")[0]
    cells = re.findall(r'<td class="number(?: quiet)?">(.*?)</td>', row)
    assert ["best" in cell for cell in cells] == [False, True, False]
    assert "does not apply" in cells[2] and "two &lt;b&gt;" in page
    assert page == comparison_page(
        {"one": scored(made, 0.5), "two <b>": scored(made, 0.7), "three": scored(made, None)}
    )


def test_the_best_is_nearest_to_the_ideal_and_equals_are_not_marked():
    assert best(metric("x", direction="lower"), [0.1, 0.2]) == {0}
    assert best(metric("x", direction="lower", ideal=0.5), [0.1, 0.45, 0.6]) == {1}
    assert best(metric("x", span=(-math.inf, math.inf)), [-20.0, -19.0]) == {1}
    assert best(metric("x"), [0.5, 0.50001]) == set(), "what reads the same is the same"
    assert best(metric("x"), [0.5, 0.5, 0.5]) == set() and best(metric("x"), [0.5, 0.5, 0.4]) == {0, 1}


def test_releases_are_compared_on_the_same_rows_only():
    with pytest.raises(ArgumentError, match="same real rows"):
        comparison_page({"one": ordinary(), "two": wide(60)})
    with pytest.raises(ArgumentError, match="at least one"):
        comparison_page({})


# --- a table of its size --------------------------------------------------------------------------------------


@pytest.mark.skipif(not (DATA / "adult.parquet").exists(), reason="the Adult table is not on this machine")
def test_adult_is_drawn_in_seconds_and_a_megabyte():
    table = pq.read_table(DATA / "adult.parquet")
    schema = draft(table).schema
    half = table.num_rows // 2
    real, synthetic = (sample_of(part, schema) for part in (table.slice(0, half), table.slice(half)))
    names = [each for each, _ in schema.modelled]
    pairs = [(left, right) for place, right in enumerate(names) for left in names[:place]]
    parts = tuple(Part(of=pair, value=0.1, detail={"real": 0.2, "synthetic": 0.3}) for pair in pairs)
    groups = {"pairs": tuple(Score(metric=metric(f"pair_{n}", "pair"), parts=parts) for n in range(6))}
    comparison = Comparison(schema=schema, real=real, synthetic=synthetic)
    start = time.perf_counter()
    page = report_page(Evaluation(comparison=comparison, groups=groups))
    assert time.perf_counter() - start < 5
    assert len(page.encode()) < 1_500_000
    assert "Exactly 0:" in page, "capital-gain is mostly zero"
