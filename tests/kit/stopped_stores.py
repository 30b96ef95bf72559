"""A store with something of everything, and what a console shows of it: running, then stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from trocket.client import SimpleConsumer

from .lives import (
    Case,
    Place,
    consumed,
    consumed_or_filtered,
    dead_letter,
    delayed,
    play,
    retrying,
    retrying_now,
    stages_of_a_message,
    until,
    waiting,
)
from .waiting import wait_until

CONFIG: Final = {
    "traceTopicEnable": True,
    "enablePropertyFilter": True,
    "flushConsumerOffsetInterval": 100,
    "enablePopBufferMerge": False,
}
"""Keys of broker.conf: offsets are in their file soon and pops in the log at once, so that neither
is in memory only."""


async def popped_for_an_hour(place: Place) -> None:
    """A simple consumer has it, and never acknowledges it."""
    async with SimpleConsumer(
        place.url, group=place.group, subscriptions={place.topic: "*"}
    ) as consumer:
        await place.send()

        async def received() -> object:
            return await consumer.receive(invisible_s=3_600.0, wait_s=1.0)

        await until(received)


STEADY: Final[tuple[Case, ...]] = (
    consumed,
    consumed_or_filtered,
    dead_letter,
    delayed,
    popped_for_an_hour,
    retrying,
    retrying_now,
    stages_of_a_message,
    waiting,
)
"""Cases whose outcomes stay as they are when their clients have gone."""


async def stock(url: str, *, has_pops: bool = True) -> None:
    """Make the cases, each in a topic of its name, or of another where a busy machine is late."""
    for case in STEADY:
        if not has_pops and case is popped_for_an_hour:
            continue
        try:
            await play(url, case, case.__name__)
        except TimeoutError:
            await play(url, case, f"{case.__name__}_again")


LIVE_FIELDS: Final = frozenset(
    {
        "chart",  # of the samples that this console took
        "delayS",  # until now
        "inRate",
        "lags",  # of the samples that this console took
        "nowMs",
        "outRate",
        "rate",
        "sinceMs",  # an hour before now
        "withoutMemory",  # whether a broker says which pops it has in memory
        "waitS",  # of a rate
    }
)
"""Fields that only a running broker knows, or that go on with the clock, on every page."""
MEMBERS: Final = {"what": "members", "of": "", "reason": "STOPPED", "text": ""}
"""The gap in the life of a message that a stopped broker's groups leave: who their members are."""


FAILURES: Final = ("REFUSED", "SILENT")
"""Gaps that are none a moment later."""
GetTree = Callable[..., Any]
"""Gets a page as JSON: its name, and its query."""


def shown_pages(get: GetTree) -> dict[str, Any]:
    """The pages of all that `stock` made, by their addresses, without LIVE_FIELDS.

    Args:
      get: of a console.
    """
    found: dict[str, Any] = {}

    def add(page: str, **query: str) -> Any:
        address = "&".join([page, *(f"{name}={value}" for name, value in query.items())])
        tree = _in_time(get, page, query)
        found[address] = _without_live(_from_now(tree) if page == "message" else tree)
        return tree

    topics = sorted(each["topic"] for each in add("topics")["topics"])
    groups = sorted(each["group"] for each in add("groups")["groups"])
    for topic in topics:
        add("topic", topic=topic)
        for each in add("messages", topic=topic)["messages"]:
            add("message", id=each["messageId"], topic=topic)
            add("message", id=each["messageId"])
        add("messages", topic=topic, tag="refund", sql="", order="oldest")
    for each in add("delayed")["messages"]:
        add("message", id=each["messageId"])
    for group in groups:
        for page in ("group", "popped"):
            add(page, group=group)
        for each in add("dead_letters", group=group)["letters"]:
            add("message", id=each["messageId"])
    return found


def _in_time(get: GetTree, page: str, query: dict[str, str]) -> Any:
    """A page on which nothing is missing: of a busy machine, or of 4.9's first second."""
    found: list[Any] = []

    def is_whole() -> bool:
        tree = get(f"{page}.json", **query)
        found.append(tree)
        gaps = tree["life"]["gaps"] if page == "message" else ()
        if tree.get("error") or tree.get("gaps"):
            return False
        return not any(each["reason"] in FAILURES for each in gaps)

    wait_until(is_whole, lambda: f"{page} {query}: {found[-1]}", pause_s=0.1)
    return found[-1]


def _from_now(tree: Any) -> Any:
    """A message's page whose deletion is not at a time, but in a time from now on."""
    life = tree["life"]
    for stage in life["stages"]:
        if stage["kind"] == "DELETION" and stage["atMs"] is not None:
            stage["atMs"] -= life["nowMs"]
    return tree


def _without_live(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _without_live(each) for name, each in tree.items() if name not in LIVE_FIELDS}
    if isinstance(tree, list):
        return [_without_live(each) for each in tree if each != MEMBERS]
    return tree


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Where two trees differ: each path with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from differences(before.get(name), after.get(name), f"{path}.{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif before != after:
        yield f"{path}: {before!r:.200} became {after!r:.200}"


Stamp = tuple[int, int, int, str]
"""Times of the last change of content and of state in ns, size in bytes, SHA-256."""


def stamps(folder: Path) -> dict[str, Stamp]:
    """Every file and folder below one, and itself, as it is now."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        state = path.stat()
        content = sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = state.st_mtime_ns, state.st_ctime_ns, state.st_size, content
    return found
