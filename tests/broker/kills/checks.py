"""Checks of the data on a machine that outlives another one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trocket.interop.wire import WireClient
from trocket.remoting.message import MessageExt
from trocket.remoting.message_codec import decode_messages
from trocket.store.log.commit_log import file_name
from trocket.store.offline.fsck import check_store
from trocket.store.offline.read_only import ReadOnlyDisk

from ...kit.waiting import wait_until
from .load import OK, QUEUES, TOPICS, Answered, Load
from .machines import FILE_SIZE

GROUP = "kills"


def read_all(address: str) -> dict[tuple[str, int, int], MessageExt]:
    """All messages of a broker by topic, queue id and queue offset, as consumers get them."""
    found = {}
    with WireClient(address) as wire:
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                assert wire.min_offset(topic, queue_id) == 0
                records = b"".join(wire.pull_all(GROUP, topic, queue_id))
                messages = decode_messages(records, check_crc=True)
                assert [each.queue_offset for each in messages] == [*range(len(messages))]
                found.update({(topic, queue_id, each.queue_offset): each for each in messages})
    return found


def check_messages(load: Load, found: dict[tuple[str, int, int], MessageExt]) -> int:
    """All that was answered SEND_OK is where the answer says, and nothing that was not sent.

    Whatever lies in the log before something answered SEND_OK must be there, too, its own answer
    be what it may.

    Returns: how many messages that were answered were compared.
    """
    safe = [each for each in load.answers if each.code == OK]
    end = max((each.physical_offset for each in safe), default=-1)
    owed = [each for each in load.answers if each.physical_offset <= end]
    lost = [each.place for each in owed if each.place not in found]
    assert lost == [], f"{len(lost)} of {len(owed)} are lost, first {lost[0]}; {load.story()}"
    for each in owed:
        assert is_what_was_sent(each, found[each.place]), f"{each.place} differs; {load.story()}"
    bodies = [message.body for message in found.values()]
    assert len(set(bodies)) == len(bodies), f"something is there twice; {load.story()}"
    assert load.sent.keys() >= set(bodies), f"something was never sent; {load.story()}"
    assert load.refused.isdisjoint(bodies), f"something was refused; {load.story()}"
    return len(owed)


def is_what_was_sent(each: Answered, message: MessageExt) -> bool:
    """Whether a message is the one that was answered, with all it was sent with."""
    properties = message.properties
    return (
        message.physical_offset == each.physical_offset
        and message.body == each.sent.body
        and {name: properties.get(name) for name in each.sent.properties} == each.sent.properties
    )


def check_keys(load: Load, address: str, every: int = 25) -> None:
    """A look-up by key finds what was answered SEND_OK, once, when the index has caught up (N7)."""
    safe = sorted((each for each in load.answers if each.code == OK), key=in_log_order)
    with WireClient(address) as wire:

        def look_up(each: Answered) -> list[bytes]:
            key = each.sent.properties["UNIQ_KEY"]
            return wire.query_message(each.sent.topic, key, unique=True)

        wait_until(lambda: look_up(safe[-1]) != [], f"the index ends too early; {load.story()}")
        for each in safe[::every]:
            (record,) = look_up(each)
            (message,) = decode_messages(record, check_crc=True)
            assert is_what_was_sent(each, message), f"{each.place} by key; {load.story()}"


def in_log_order(each: Answered) -> int:
    """To sort by: where in the log a message is."""
    return each.physical_offset


def check_goes_on(address: str, code: int, found: Iterable[tuple[str, int, int]]) -> None:
    """A new message gets its queue's next offset."""
    ends = {(topic, queue_id): 0 for topic in TOPICS for queue_id in range(QUEUES)}
    for topic, queue_id, _ in found:
        ends[topic, queue_id] += 1
    with WireClient(address) as wire:
        for (topic, queue_id), end in ends.items():
            fields = {"a": GROUP, "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0}
            fields |= {"g": 1, "h": 0, "i": "", "j": 0, "k": "false", "m": "false"}
            answer = wire.call(310, fields, b"new")
            assert (answer.code, int(answer.fields["queueOffset"])) == (code, end)


def check_files(store: Path, *, is_stopped: bool = False) -> None:
    """`trocket store fsck` finds nothing in a store that no broker has open.

    What the next start puts right after a kill is only a warning: queue and index files that end
    before the log does. After a clean stop there is none.
    """
    report = check_store(ReadOnlyDisk(), str(store))
    assert report.is_clean, report.as_dict()["findings"]
    if is_stopped:
        assert report.findings.total == 0, report.as_dict()["findings"]


def check_prefix(shorter: Path, longer: Path) -> None:
    """Each file of a log begins as its counterpart, up to where the shorter one ends."""
    end = check_store(ReadOnlyDisk(), str(shorter)).log_end
    for base in range(0, end, FILE_SIZE):
        ours, theirs = (
            (store / "commitlog" / file_name(base)).read_bytes()[: end - base]
            for store in (shorter, longer)
        )
        assert ours == theirs, f"the logs differ in the file of {base}"


def log_end(store: Path) -> int:
    """Physical offset behind the last record of a store that no broker has open."""
    return check_store(ReadOnlyDisk(), str(store)).log_end
