"""Has mkdocstrings understand the docstrings as they are written here.

They are Google's, with less to write: sections follow one another without blank lines and are
indented by two, `Raises` often stands in one line, `Keys` are a TypedDict's, `options` are the
`**options`, and a colon more announces an example. A blocking class's `forwarded(AsyncClass.verb)`,
or `Admin`'s of one of its parts, is shown as the method that it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from griffe import Attribute, Class, Docstring, Extension, Function, Module, Object, Parameters

SECTION = re.compile(r"(Args|Attributes|Keys|Raises|Returns|Yields): *(.*)")
MIDDLE = re.compile(r"(\S.*?[.)]) (Raises|Returns): (.*)")
ERROR = r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)"
ENTRY = re.compile(rf"(?:and )?({ERROR})(?:: *(.*))?")
FORWARDED = re.compile(r"forwarded\((\w+)\.(\w+)\)")
BETWEEN = re.compile(rf"(?:;|\.) +(?=(?:and )?{ERROR}\b)|; +(?=(?:and )?as `)")


class PlainDocstrings(Extension):
    """Rewrites every docstring of the package when all of it is loaded."""

    def on_package(self, *, pkg: Module, **kwargs: Any) -> None:
        """Called by griffe."""
        for each in [each for each in _objects(pkg) if isinstance(each, Attribute)]:
            verb = _forwarded(pkg, each)
            if verb is not each and isinstance(each.parent, Class):
                each.parent.set_member(each.name, _method(each.name, verb))
        _remove_internals(pkg)
        for each in _objects(pkg):
            if each.docstring is not None:
                each.docstring.value = rewritten(each.docstring.value, _parameters(each))


def _remove_internals(pkg: Module) -> None:
    """Leave out what parts of the package use of one another, and arguments that are refused."""
    internals = ast.literal_eval(str(pkg["client.checks.misuse.INTERNALS"].value))
    for each in list(_objects(pkg)):
        if isinstance(each, Class):
            for name in internals.get(each.name, ()):
                each.members.pop(name, None)
        elif isinstance(each, Function):
            kept = [one for one in each.parameters if str(one.annotation) != "Never"]
            if len(kept) < len(each.parameters):
                each.parameters = Parameters(*kept)


def _forwarded(pkg: Module, member: Object) -> Object:
    """The verb that a member forwards to, by however many classes; others: the member."""
    forward = FORWARDED.fullmatch(str(getattr(member, "value", "")))
    if forward is None:
        return member
    part = pkg.modules_collection[member.resolve(forward[1])]
    return _forwarded(pkg, part.all_members[forward[2]])


def _method(name: str, verb: Object) -> Function:
    """The verb of another class as a method."""
    method = Function(name, parameters=verb.parameters, returns=verb.returns, lineno=verb.lineno)
    if verb.docstring is not None:
        text = verb.docstring
        method.docstring = Docstring(
            text.value, parent=method, parser=text.parser, parser_options=text.parser_options
        )
    return method


def _objects(parent: Object) -> Iterator[Object]:
    yield parent
    for member in parent.members.values():
        if isinstance(member, Object):  # and no alias
            yield from _objects(member)


def _parameters(each: Object) -> list[str]:
    if not isinstance(each, Class | Function):
        return []
    return [parameter.name for parameter in each.parameters]


def rewritten(text: str, parameters: Iterable[str]) -> str:
    """A docstring as Google would have it."""
    starred = {name.lstrip("*"): name for name in parameters if name.startswith("*")}
    lines = text.splitlines()
    out: list[str] = []
    while lines:
        line = lines.pop(0)
        middle = MIDDLE.fullmatch(line)
        if middle is not None:
            line = middle[1]
            lines.insert(0, f"{middle[2]}: {middle[3]}")
        section = SECTION.fullmatch(line)
        if section is None:
            if line.rstrip().endswith("::"):
                line = line.rstrip()[:-1].removesuffix(":") if line.strip() == "::" else line[:-1]
            out.append(line)
            continue
        block = []
        while lines and (not lines[0].strip() or lines[0].startswith(" ")):
            block.append(lines.pop(0))
        out += ["", *_section(section[1], section[2], block, starred), ""]
    return "\n".join(out).strip()


def _section(title: str, inline: str, block: list[str], starred: dict[str, str]) -> list[str]:
    items = _items(block)
    if title in ("Returns", "Yields"):
        # As text: the signature has the type.
        return [f"**{title}:** {' '.join([inline, *(' '.join(item) for item in items)]).strip()}"]
    if title == "Raises":
        if inline:
            texts = [" ".join([inline, *(" ".join(item) for item in items)])]
        else:
            texts = [" ".join(item) for item in items]
        return _raises(texts)
    if inline:
        items.insert(0, [inline])
    out = ["Attributes:" if title == "Keys" else f"{title}:"]
    for first, *rest in items:
        while ":" not in first and rest:
            first = f"{first} {rest.pop(0)}"
        names, _, what = first.partition(":")
        for name in names.split(","):
            out.append(f"    {starred.get(name.strip(), name.strip())}:{what}")
            out += [f"        {line}" for line in rest]
    return out


def _items(block: list[str]) -> list[list[str]]:
    """The lines of each item, without indentation."""
    filled = [line for line in block if line.strip()]
    depth = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    items: list[list[str]] = []
    for line in filled:
        if len(line) - len(line.lstrip()) == depth or not items:
            items.append([line.strip()])
        else:
            items[-1].append(line.strip())
    return items


def _raises(texts: list[str]) -> list[str]:
    entries: list[str] = []
    others: list[str] = []
    for text in texts:
        for part in BETWEEN.split(text):
            entry = ENTRY.fullmatch(part.strip().removesuffix("."))
            if entry is None:
                others.append(part.strip().removesuffix("."))
            else:
                entries.append(f"    {entry[1]}: {entry[2] or ''}".rstrip())
    out = ["Raises:", *entries, ""] if entries else []
    if others:
        also = "Also raises" if entries else "Raises"
        out.append(f"{also} {'; '.join(other.removeprefix('and ') for other in others)}.")
    return out
