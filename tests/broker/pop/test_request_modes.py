"""broker/tables/request_modes.py: the table of modes, and its file."""

from __future__ import annotations

import json

import pytest

from trocket.broker.tables import request_modes
from trocket.broker.tables.request_modes import MessageRequestModeManager, Mode
from trocket.common.steps import at_once
from trocket.remoting.bodies import MessageRequestMode, MessageRequestModeSerializeWrapper
from trocket.remoting.errors import RequestRefused

POP, PULL = MessageRequestMode.POP, MessageRequestMode.PULL

SAVED_BY_APACHE = b"""{
\t"messageRequestModeMap":{
\t\t"T":{
\t\t\t"G":{
\t\t\t\t"consumerGroup":"G",
\t\t\t\t"mode":"POP",
\t\t\t\t"popShareQueueNum":3,
\t\t\t\t"topic":"T"
\t\t\t},
\t\t\t"H":{
\t\t\t\t"consumerGroup":"H",
\t\t\t\t"mode":"PULL",
\t\t\t\t"popShareQueueNum":0,
\t\t\t\t"topic":"T"
\t\t\t}
\t\t}
\t}
}"""


class Table:
    """A table of modes, and what it saved."""

    def __init__(self) -> None:
        self.saved: list[bytes] = []
        self.modes = MessageRequestModeManager(save=lambda name, text: self.saved.append(text))

    def set(self, topic: str, group: str, shared: int = 0) -> None:
        self.modes.set(Mode(topic, group, POP, shared))


def test_the_file_is_apaches_and_comes_back_byte_for_byte() -> None:
    table = Table()
    assert table.modes.decode(SAVED_BY_APACHE) == 2
    assert table.modes.find("T", "G") == Mode("T", "G", POP, 3)
    assert table.modes.find("T", "H") == Mode("T", "H", PULL, 0)
    assert table.modes.find("T", "other") is None
    assert table.modes.encode() == SAVED_BY_APACHE


@pytest.mark.parametrize("text", [b"{}", b'{"messageRequestModeMap":{}}', b'{"dataVersion":1}'])
def test_an_empty_table_may_be_written_in_several_ways(text) -> None:
    assert Table().modes.decode(text) == 0


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"messageRequestModeMap":[]}',
        b'{"messageRequestModeMap":{"T":{"G":{"mode":"LATER"}}}}',
        b'{"messageRequestModeMap":{"T":{"G":{"popShareQueueNum":4294967296}}}}',
    ],
)
def test_a_damaged_file_is_refused_and_changes_nothing(text) -> None:
    table = Table()
    table.modes.decode(SAVED_BY_APACHE)
    with pytest.raises(ValueError, match=r"table of modes|holds a list|JSON cannot"):
        table.modes.decode(text)
    assert table.modes.encode() == SAVED_BY_APACHE


def test_a_change_is_saved_and_a_repetition_is_not() -> None:
    table = Table()
    table.set("T", "G", 3)
    table.set("T", "G", 3)
    assert len(table.saved) == 1
    table.set("T", "G", 4)
    assert len(table.saved) == 2
    again = Table()
    again.modes.decode(table.saved[-1])
    assert again.modes.find("T", "G") == Mode("T", "G", POP, 4)


def test_entries_end_with_their_topic_or_group() -> None:
    table = Table()
    for topic, group in (("T", "G"), ("T", "H"), ("U", "G"), ("U", "H"), ("V", "G")):
        table.set(topic, group)
    table.modes.topic_deleted("T")
    table.modes.group_deleted("G")
    assert json.loads(table.saved[-1])["messageRequestModeMap"].keys() == {"U"}
    assert (len(table.modes), table.modes.find("U", "H")) == (1, Mode("U", "H", POP, 0))
    saves = len(table.saved)
    table.modes.topic_deleted("T")
    table.modes.group_deleted("G")
    assert len(table.saved) == saves


def test_the_number_of_entries_is_limited(monkeypatch) -> None:
    monkeypatch.setattr(request_modes, "ENTRIES_MAX", 2)
    table = Table()
    table.set("T", "G")
    table.set("U", "G")
    with pytest.raises(RequestRefused, match="no more than 2 pairs") as refused:
        table.set("V", "G")
    assert refused.value.code == 1
    table.set("T", "G", 7)  # a known one may change
    table.modes.topic_deleted("U")
    table.set("V", "G")
    assert len(table.modes) == 2


def test_a_masters_table_replaces_it() -> None:
    table = Table()
    table.set("gone", "G")
    master = Table()
    master.modes.decode(SAVED_BY_APACHE)
    answer = MessageRequestModeSerializeWrapper.from_body(at_once(master.modes.to_body()))
    table.modes.take_over(answer)
    assert (table.saved[-1], len(table.modes)) == (SAVED_BY_APACHE, 2)
    saves = len(table.saved)
    table.modes.take_over(answer)
    assert len(table.saved) == saves


def test_a_large_table_is_written_in_steps() -> None:
    table = Table()
    names = {f"T{number}": {"G": {"mode": "POP"}} for number in range(2_000)}
    table.modes.decode(json.dumps({"messageRequestModeMap": names}).encode())
    assert len(list(table.modes.to_body())) > 1
    tree = json.loads(at_once(table.modes.to_body()))
    assert len(tree["messageRequestModeMap"]) == 2_000
    assert tree["messageRequestModeMap"]["T7"]["G"] == {
        "topic": "T7", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 0,
    }  # fmt: skip
