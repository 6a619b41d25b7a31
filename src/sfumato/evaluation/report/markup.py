"""Markup: HTML elements as text, with everything that came from a table or a schema made harmless."""

import html
import re

# Control characters, and the marks that turn the direction of a line: they could hide or reorder what is read.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)


def visible(value: object) -> str:
    r"""A text on one line, with each character that cannot be seen replaced by one that can.

    >>> visible("two\nlines")
    'two␊lines'
    """
    return _UNSEEN.sub(_picture, str(value))


def _picture(found: re.Match[str]) -> str:
    place = ord(found[0])
    return chr(0x2400 + place) if place < 0x20 else "\ufffd"


def text(value: object) -> str:
    """A text as HTML.

    >>> text("<b>")
    '&lt;b&gt;'
    """
    return html.escape(visible(value), quote=True)


def name(value: object) -> str:
    """A name from the schema or the rows: it may run from right to left without turning the words beside it.

    >>> name("age")
    '<bdi>age</bdi>'
    """
    return f"<bdi>{text(value)}</bdi>"


def brief_name(value: object, most: int = 60) -> str:
    """A name for a table: a long one is cut, and then whole in its tooltip."""
    cut = short(value, most)
    return name(value) if cut == visible(value) else element("bdi", html.escape(cut), title=value)


def short(value: object, most: int = 20) -> str:
    """At most so many characters, the last one dots where something was cut. Not yet HTML.

    >>> short("native-country", 8)
    'native-…'
    """
    seen = visible(value)
    return seen if len(seen) <= most else seen[: most - 1].rstrip() + "…"


def element(tag: str, *content: str, **attributes: object) -> str:
    """An element around content that is HTML already; attributes are escaped here.

    A trailing underscore of an attribute is dropped, another becomes a hyphen; None leaves it out.

    >>> element("td", text("a < b"), class_="number", title=None)
    '<td class="number">a &lt; b</td>'
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{written}>{''.join(content)}</{tag}>"


def scrolling(content: str, words: str) -> str:
    """A box that scrolls by itself, with the keyboard too, so that the page need not."""
    return element("div", content, class_="scroll", tabindex=0, role="region", aria_label=words)


def first_sentence(words: str) -> str:
    """A text up to its first full stop.

    >>> first_sentence("The share of rows at 0.5 or more. It is best at 1.")
    'The share of rows at 0.5 or more.'
    """
    end = re.search(r"\.\s", words)
    return words[: end.start() + 1] if end else words


def paragraphs(*lines: str, **attributes: object) -> str:
    """A paragraph for each line of plain text that is not empty."""
    return "".join(element("p", text(line), **attributes) for line in lines if line)
