"""HTML as a tree that escapes all text when it is serialized."""

from __future__ import annotations

import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

_NOT_IN_HTML = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Control characters and lone surrogates, which HTML drops or cannot represent."""


def node(tag: str, *children: Element | str, **attributes: str | None) -> Element:
    """An element; the attributes `class_` and `data_x` become `class` and `data-x`."""
    names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
    made = Element(
        tag,
        {names[name]: _shown(value) for name, value in attributes.items() if value is not None},
    )
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + _shown(child)
        else:
            made.text = (made.text or "") + _shown(child)
    return made


def _shown(text: str) -> str:
    """The text with unprintable characters replaced by `\\x00` or `\\ud800`."""
    return _NOT_IN_HTML.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def document(title: str, body: Element, style: str) -> bytes:
    """A self-contained page in UTF-8.

    Args:
      style: trusted CSS; it is not escaped.
    """
    styles = node("style")
    styles.text = style
    head = node(
        "head",
        node("meta", charset="utf-8"),
        node("meta", name="viewport", content="width=device-width, initial-scale=1"),
        node("meta", name="color-scheme", content="light dark"),
        node("title", title),
        styles,
    )
    root = node("html", head, body, lang="en")
    text = ElementTree.tostring(root, encoding="unicode", method="html")
    return f"<!doctype html>\n{text}\n".encode()
