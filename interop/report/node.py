"""HTML as a tree, which escapes whatever is put into it when it is written."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from .text import printable


def node(tag: str, *children: Element | str, **attributes: str | None) -> Element:
    """An element. Text is escaped when it is written; `class_` and `data_x` as HTML has them."""
    names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
    made = Element(
        tag,
        {names[name]: printable(value) for name, value in attributes.items() if value is not None},
    )
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + printable(child)
        else:
            made.text = (made.text or "") + printable(child)
    return made


def document(title: str, body: Element, style: str, script: str = "") -> bytes:
    """A page that needs nothing else, in UTF-8.

    Args:
      style, script: our own; they are not escaped.
    """
    if script:
        body.append(node("script"))
        body[-1].text = script
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
