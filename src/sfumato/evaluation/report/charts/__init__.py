"""Charts: drawings as SVG text, each readable in grey, on a phone and by a screen reader."""
