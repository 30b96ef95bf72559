"""The catalogue of gRPC calls: every method and every field, and names that are unique."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from trocket.grpc_protocol.schema import MESSAGES, METHODS
from trocket.interop.grpc_differ.call import Played, Script, given, resolved
from trocket.interop.grpc_differ.caller import MESSAGES as CLASSES
from trocket.interop.grpc_differ.catalogue import SCRIPTS, coverage
from trocket.interop.grpc_differ.known import KNOWN, Known, explained
from trocket.interop.grpc_differ.wrong_fields import wrong_fields
from trocket.interop.wire_differ.normalise import Side
from trocket.interop.wire_differ.tree import Difference

DOCS = Path(__file__).resolve().parents[3] / "docs"
SIDE = Side("trocket", "127.0.0.1:1", "127.0.0.1:2")


def test_no_two_cells_have_one_name() -> None:
    names = Counter(name for script in SCRIPTS for name, _ in script.compared())
    assert [name for name, count in names.items() if count > 1] == []


def test_each_method_is_called_well_and_wrongly() -> None:
    counts = coverage()
    assert {name for name in METHODS if counts[name] < 10} == set()


def named(fields: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for name, value in fields.items():
        yield f"{before}{name}"
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, Mapping):
            yield from named(inner, f"{before}{name}.")


@pytest.mark.parametrize("method", METHODS)
def test_each_field_of_a_request_is_tried(method: str) -> None:
    request, _ = METHODS[method]
    tried = {name for _, fields in wrong_fields(request, {}) for name in named(fields)}
    assert set(MESSAGES[request]) <= tried


@pytest.mark.parametrize("method", METHODS)
def test_each_wrong_request_can_be_encoded(method: str) -> None:
    request, _ = METHODS[method]
    found = dict(wrong_fields(request, {}))
    encoded = {getattr(CLASSES, request)(**fields).SerializeToString() for fields in found.values()}
    assert len(encoded) > 1


def test_a_value_of_an_earlier_answer_is_read_by_its_path() -> None:
    answer = CLASSES.SendMessageResponse(entries=[{"message_id": "a"}, {"message_id": "b"}])
    played = Played(SIDE, {"sent": [answer]})
    fields = {"x": [given("sent", "0.entries.1.message_id"), given("sent", "0.entries.2.offset")]}
    assert resolved(fields, played) == {"x": ["b", ""]}


KNOWN_ONE = Known(row="r", calls=("A: a *",), paths=("answers.*.status.code",), sign="1 / 2")
CODE = Difference(("answers", "0", "status", "code"), 1, 2)


@pytest.mark.parametrize(
    ("call", "found", "is_known"),
    [
        ("A: a call", [CODE], True),
        ("A: another", [CODE], False),
        ("A: a call", [Difference(CODE.path, 2, 1)], False),
        ("A: a call", [CODE, Difference(("grpc",), "OK", "open")], False),
    ],
)
def test_every_difference_must_be_covered(
    call: str, found: list[Difference], is_known: bool
) -> None:
    assert explained(call, found, [KNOWN_ONE]) == ([KNOWN_ONE] if is_known else None)


def test_each_known_difference_has_its_row() -> None:
    rows = [
        line.removeprefix("| ")
        for line in (DOCS / "quirks.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    missing = {each.row for each in KNOWN if not any(row.startswith(each.row) for row in rows)}
    assert missing == set()


def test_scripts_have_topics_and_clients_to_themselves() -> None:
    def topics(script: Script) -> set[str]:
        return {step.name for step in script.steps if type(step).__name__ == "Topic"}

    owners = Counter(name for script in SCRIPTS for name in topics(script))
    assert [name for name, count in owners.items() if count > 1] == []
