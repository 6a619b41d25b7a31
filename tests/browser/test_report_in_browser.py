"""The report in a real browser: no errors, no network, everything drawn, and readable on a phone, on paper, without
scripts and without colour.

Each check is a function from an open page to a list of faults, so that it can also be shown a page that is broken.
"""

import re
import zlib

import pytest

from browser.browser import NAMES, browser, find_browser
from browser.cases import hostile, ordinary, wide
from sfumato.evaluation.report import comparison_page, report_page

CHROMIUM = find_browser()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=f"no browser on this machine; looked for {', '.join(NAMES)}")

PHONE, PAPER, DESK = 375, 688, 1280
COLUMNS = 9


@pytest.fixture(scope="module")
def tab():
    with browser(CHROMIUM) as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "ordinary": report_page(ordinary()),
        "hostile": report_page(hostile()),
        "wide": report_page(wide(70)),
        "side by side": comparison_page({"first": ordinary(), "second": ordinary(), "x" * 200: ordinary()}),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def plain_view(request):
    """Every test starts at a desk, in light, with scripts."""
    if CHROMIUM is not None:
        running = request.getfixturevalue("tab")
        running.set_scripts(allowed=True)
        running.resize(DESK, 900)
        running.show_as()


def planted(pages, old, new):
    """The ordinary page with one thing changed."""
    text = (pages / "ordinary.html").read_text(encoding="utf-8")
    assert old in text
    path = pages / "planted.html"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


# --- the checks -----------------------------------------------------------------------------------------------


def noise_faults(tab, page):
    """Complaints of the browser, and requests for anything but the page itself."""
    return tab.complaints + [url for url in tab.requests if url != page.resolve().as_uri()]


def drawing_faults(tab, columns=COLUMNS):
    """Drawings that are missing or empty: one a column, and each with an extent."""
    found = []
    drawn = tab.evaluate("document.querySelectorAll('article.column figure svg.chart').length")
    cards = tab.evaluate("document.querySelectorAll('article.column').length")
    if (drawn, cards) != (columns, columns):
        found.append(f"{drawn} drawings on {cards} cards for {columns} columns")
    empty = "[...document.querySelectorAll('svg.chart')].filter(s => s.getBBox().width < 1 || s.getBBox().height < 1)"
    found += tab.evaluate(f"{empty}.map(s => 'empty: ' + s.getAttribute('aria-label'))")
    without = "[...document.querySelectorAll('article.column svg.chart')].filter(s => !s.querySelector("
    found += tab.evaluate(f"{without}'.area-real, .bar-real')).map(s => 'no real marks')")
    found += tab.evaluate(f"{without}'.line-synthetic, .bar-synthetic')).map(s => 'no synthetic marks')")
    return found


def overflow_faults(tab, width):
    """Whether the page is wider than the screen. A phone zooms out on such a page, so its own measure is no witness."""
    measured = tab.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]")
    return [f"{each} pixels on a screen of {width}" for each in measured if each > width]


def colour_faults(tab):
    """Whether real and synthetic marks are told apart by colour alone."""
    styles = tab.evaluate(
        "(() => { const style = (s) => { const e = document.querySelector('article.column ' + s); "
        "if (!e) return null; const c = getComputedStyle(e); return [c.fill, c.strokeWidth]; }; "
        "return ['.area-real', '.line-synthetic', '.bar-real', '.bar-synthetic'].map(style); })()"
    )
    if None in styles:
        return ["marks are missing"]
    area, line, real, synthetic = styles
    found = []
    if "url(" not in area[0] or line[0] != "none":
        found.append(f"histograms differ in colour alone: {area}, {line}")
    if "url(" not in real[0] or "url(" in synthetic[0] or real[1] == synthetic[1]:
        found.append(f"bars differ in colour alone: {real}, {synthetic}")
    return found


CONTRAST = """
(() => {
  const rgb = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const part = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = (c) => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]) + 0.05;
  const ground = (e) => {
    if (e.matches("text.cell")) return rgb(getComputedStyle(e.previousElementSibling).fill);
    for (e = e.closest("svg") || e; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const found = new Set();
  for (const e of document.querySelectorAll("body *")) {
    const speaks = [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!speaks || !e.getClientRects().length || e.matches("title, script, style, option")) continue;
    const style = getComputedStyle(e);
    const ink = rgb(e.closest("svg") ? style.fill : style.color);
    const [most, least] = [light(ink), light(ground(e))].sort((x, y) => y - x);
    if (most / least < 4.5) found.add(`${e.tagName}.${e.getAttribute("class")}: ${(most / least).toFixed(2)}`);
  }
  return [...found];
})()
"""
"""Texts with less contrast than level AA of the Web Content Accessibility Guidelines asks for, those in the shaded
cells of a map included."""


# --- the page passes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ordinary", "hostile", "wide", "side by side"])
def test_no_errors_and_no_network(tab, pages, name):
    page = pages / f"{name}.html"
    tab.open(page)
    assert noise_faults(tab, page) == []
    assert tab.requests == [page.resolve().as_uri()], "the witness sees the page itself"


@pytest.mark.parametrize(("name", "columns"), [("ordinary", COLUMNS), ("hostile", 10), ("wide", 70)])
def test_everything_is_drawn(tab, pages, name, columns):
    tab.open(pages / f"{name}.html")
    assert drawing_faults(tab, columns) == []


@pytest.mark.parametrize("name", ["ordinary", "hostile", "wide", "side by side"])
@pytest.mark.parametrize("width", [PHONE, 768, DESK])
def test_the_page_is_never_wider_than_the_screen(tab, pages, name, width):
    tab.resize(width, 800, phone=width == PHONE)
    tab.open(pages / f"{name}.html")
    assert overflow_faults(tab, width) == []


def test_wide_content_scrolls_in_a_box_of_its_own(tab, pages):
    tab.resize(PHONE, 800, phone=True)
    tab.open(pages / "ordinary.html")
    assert tab.evaluate("[...document.querySelectorAll('.scroll')].some(b => b.scrollWidth > b.clientWidth)")


def test_hostile_names_run_nothing(tab, pages):
    tab.open(pages / "hostile.html")
    assert tab.evaluate("typeof window.hurt") == "undefined"
    assert tab.evaluate("document.scripts.length") == 1


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_each_link_of_the_navigation_leads_to_its_section(tab, pages, width):
    tab.resize(width, 800, phone=width == PHONE)
    tab.open(pages / "ordinary.html")
    anchors = tab.evaluate("[...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))")
    assert len(anchors) == 8
    for anchor in anchors:
        tab.click(f"nav a[href='#{anchor}']")
        tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        top = tab.evaluate(f"document.getElementById('{anchor}-title').getBoundingClientRect().top")
        bar = tab.evaluate("document.querySelector('nav').getBoundingClientRect().bottom")
        end = tab.evaluate("Math.ceil(scrollY + innerHeight) >= document.documentElement.scrollHeight")
        assert bar <= top < (800 if end else bar + 120), anchor
        assert tab.evaluate("location.hash") == f"#{anchor}"


def test_the_search_shows_the_columns_that_fit(tab, pages):
    tab.open(pages / "ordinary.html")
    cards = "[...document.querySelectorAll('article.column')]"
    shown = f"{cards}.filter(c => c.getClientRects().length).map(c => c.dataset.name)"
    assert len(tab.evaluate(shown)) == COLUMNS
    tab.type("#find-column", "EIGHT")
    assert tab.evaluate(shown) == ["weight", "height"]
    assert tab.evaluate("document.getElementById('found-columns').textContent") == "2 of 9 columns"
    tab.type("#find-column", "no such column")
    assert tab.evaluate(shown) == []
    tab.type("#find-column", "")
    assert len(tab.evaluate(shown)) == COLUMNS


def test_columns_can_be_put_in_order(tab, pages):
    tab.open(pages / "ordinary.html")
    listed = "[...document.querySelectorAll('article.column')].map(c => c.dataset.name)"
    schema = tab.evaluate(listed)

    def choose(order):
        tab.evaluate(
            f"(() => {{ const s = document.getElementById('order-columns'); s.value = '{order}'; "
            "s.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )
        return tab.evaluate(listed)

    worst = choose("distance")
    far = tab.evaluate("[...document.querySelectorAll('article.column')].map(c => Number(c.dataset.distance))")
    assert far == sorted(far, reverse=True) and far[0] > far[-1] and worst != schema
    assert choose("name") == sorted(schema)
    assert choose("order") == schema == [name for name, _ in ordinary().comparison.schema.modelled]


def test_without_scripts_everything_is_there_but_the_tools(tab, pages):
    tab.set_scripts(allowed=False)
    tab.open_quietly(pages / "ordinary.html")
    assert tab.evaluate("document.querySelector('.tools').getClientRects().length") == 0
    assert drawing_faults(tab) == []
    parts = "[...document.querySelectorAll('article.column, section, .tile')]"
    assert tab.evaluate(f"{parts}.filter(e => !e.getClientRects().length).length") == 0


@pytest.mark.parametrize("name", ["ordinary", "hostile", "wide", "side by side"])
def test_paper(tab, pages, name):
    tab.open(pages / f"{name}.html")
    printed = tab.pdf()
    assert printed.startswith(b"%PDF") and len(printed) > 20_000
    assert len(re.findall(rb"/Type\s*/Page\b", _unpacked(printed))) >= 2
    tab.show_as(media="print")
    tab.resize(PAPER, 900)
    assert tab.evaluate("document.querySelector('nav').getClientRects().length") == 0
    assert overflow_faults(tab, PAPER) == []
    folded = (
        "[...document.querySelectorAll('details > :not(summary)')].filter(e => e.getBoundingClientRect().height < 1)"
    )
    assert tab.evaluate(f"{folded}.length") == 0, "paper cannot be clicked"


def _unpacked(printed):
    """The text of a PDF, its packed streams opened."""
    found = [printed]
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", printed, flags=re.DOTALL):
        try:
            found.append(zlib.decompressobj().decompress(stream))
        except zlib.error:
            continue
    return b"\n".join(found)


def test_nothing_depends_on_colour_alone(tab, pages):
    tab.open(pages / "ordinary.html")
    assert colour_faults(tab) == []
    plain = tab.screenshot()
    tab.show_as(vision="achromatopsia")
    assert tab.screenshot() != plain, "the browser really shows it in grey"
    assert colour_faults(tab) == [] and drawing_faults(tab) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["ordinary", "side by side"])
def test_texts_stand_out_from_their_ground(tab, pages, name, scheme):
    tab.show_as(scheme=scheme)
    tab.open(pages / f"{name}.html")
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in re.findall(r"\d+", ground)) < 200) == (scheme == "dark")
    assert tab.evaluate(CONTRAST) == []


def test_the_keyboard_can_see_where_it_is(tab, pages):
    tab.open(pages / "ordinary.html")
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    style, width = tab.evaluate(
        "(() => { const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth] })()"
    )
    assert tab.evaluate("document.activeElement.className") == "skip" and style == "solid" and width == "3px"


# --- the same checks refuse what is broken --------------------------------------------------------------------


def test_the_checks_hear_a_console_error(tab, pages):
    page = planted(pages, '"use strict";', 'console.error("planted");')
    policy = re.compile(r"script-src [^;]*")
    page.write_text(policy.sub("script-src 'unsafe-inline'", page.read_text(), count=1))
    tab.open(page)
    assert any("planted" in fault for fault in noise_faults(tab, page))


def test_the_policy_stops_a_changed_script_and_the_checks_hear_it(tab, pages):
    page = planted(pages, '"use strict";', 'window.hurt = 5; "use strict";')
    tab.open(page)
    assert tab.evaluate("typeof window.hurt") == "undefined"
    assert any("Content Security Policy" in fault for fault in noise_faults(tab, page))


def test_the_checks_hear_an_exception(tab, pages):
    page = planted(pages, '"use strict";', 'throw new Error("planted");')
    page.write_text(re.sub(r"script-src [^;]*", "script-src 'unsafe-inline'", page.read_text(), count=1))
    tab.open(page)
    assert any("exception" in fault for fault in noise_faults(tab, page))


def test_the_checks_see_a_request(tab, pages):
    page = planted(pages, "<main", '<img src="beside.png" alt=""><main')
    page.write_text(page.read_text().replace("img-src data:", "img-src data: file:", 1))
    tab.open(page)
    assert any("beside.png" in fault for fault in noise_faults(tab, page))


def test_the_checks_see_an_overflow(tab, pages):
    page = planted(pages, "<main", '<svg width="900" height="5"></svg><main')
    tab.resize(PHONE, 800, phone=True)
    tab.open(page)
    assert overflow_faults(tab, PHONE)


def test_the_checks_see_a_missing_and_an_empty_drawing(tab, pages):
    text = (pages / "ordinary.html").read_text()
    figure = re.search(r"<figure>.*?</figure>", text, flags=re.DOTALL)[0]
    tab.open(planted(pages, figure, "<figure></figure>"))
    assert drawing_faults(tab)
    tab.open(planted(pages, figure, '<figure><svg class="chart" role="img"></svg></figure>'))
    assert any("empty" in fault for fault in drawing_faults(tab))


def test_the_checks_see_marks_that_differ_in_colour_alone(tab, pages):
    page = planted(pages, ".area-real { fill: url(#hatch);", ".area-real { fill: #5f6875;")
    page.write_text(re.sub(r"style-src [^;]*", "style-src 'unsafe-inline'", page.read_text(), count=1))
    tab.open(page)
    assert colour_faults(tab)


def test_the_checks_see_a_pale_text(tab, pages):
    page = planted(pages, "--soft: #525c6a", "--soft: #b0b0b0")
    page.write_text(re.sub(r"style-src [^;]*", "style-src 'unsafe-inline'", page.read_text(), count=1))
    tab.open(page)
    assert tab.evaluate(CONTRAST)
