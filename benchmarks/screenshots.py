"""Screenshots: pictures of a report for the docs, taken in headless Chromium.

PYTHONPATH=tests python -m benchmarks.screenshots private-adult/report.html
"""

import sys
from pathlib import Path

from browser.browser import browser, find_browser

FOLDER = Path("docs/images")
PARTS = {"report": (None, 1190), "report_columns": ("columns", 1330), "report_pairs": ("pairs", 1270)}
"""The section that a picture begins with, and its height."""


def main() -> None:
    page = Path(sys.argv[1]).resolve()
    path = find_browser()
    if path is None:
        sys.exit("no Chromium on this machine")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with browser(path) as tab:
        for name, (section, height) in PARTS.items():
            tab.resize(1180, height)
            tab.open(page)
            if section is not None:
                tab.evaluate(
                    "document.documentElement.style.scrollBehavior = 'auto'; "
                    f"document.getElementById('{section}').scrollIntoView()"
                )
            (FOLDER / f"{name}.png").write_bytes(tab.screenshot())


if __name__ == "__main__":
    main()
