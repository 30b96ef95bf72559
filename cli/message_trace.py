"""`trocket trace`: the timeline of one message, as its producers and consumers reported it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..common.terminal import say, show, time_text
from ..common.topic_names import TRACE_TOPIC
from .completion import topic_names
from .session import SHARED, Shared, ask_brokers, emit, end_with

if TYPE_CHECKING:
    from ..client import MessageTrace, TracedConsumption

COLUMNS = ("Time", "Event", "Group", "Client", "Cost ms", "Status", "Details")


def trace(
    message_id: Annotated[
        str, typer.Argument(metavar="ID", help="Message id of the producer or of the broker.")
    ],
    trace_topic: Annotated[
        str,
        typer.Option(
            "--trace-topic",
            metavar="TOPIC",
            help="Read the reports in this topic.",
            autocompletion=topic_names,
        ),
    ] = TRACE_TOPIC,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", min=1, help="Read at most this number of trace messages of each broker."
        ),
    ] = 64,
    shared: Shared = SHARED,
) -> None:
    """Show who sent a message, and who consumed it, as traced clients reported it.

    Reports arrive up to 5 s after the event. Status 1 if there is none.
    """
    found, error = ask_brokers(
        shared,
        lambda admin: admin.message_trace(message_id, trace_topic=trace_topic, count=limit),
    )
    if shared.as_json:
        emit(_tree(found))
    else:
        show(COLUMNS, [row.cells for row in rows(found)], title=found.message_id)
    if found.bad_count:
        say(f"trocket: {found.bad_count} records in {trace_topic} cannot be read")
    end_with(error)


class _Row(NamedTuple):
    """An event; `cells` are those of COLUMNS."""

    time_ms: int
    cells: list[object]


def rows(found: MessageTrace) -> list[_Row]:
    """All events of a message, by time."""
    events = []
    for sent in found.sends:
        details = [f"{sent.topic} on {sent.store_host}", f"{sent.body_length} bytes"]
        if sent.kind.name != "NORMAL":
            details.append(sent.kind.name.lower())
        if sent.tags:
            details.append(f"tags={sent.tags}")
        if sent.keys:
            details.append(f"keys={sent.keys}")
        status = "stored" if sent.is_success else "stored less safely"
        events.append(_row(sent.time_ms, "send", sent, sent.cost_ms, status, details))
    for end in found.transaction_ends:
        details = [f"{end.topic} on {end.store_host}", *(["asked for"] * end.is_from_check)]
        events.append(_row(end.time_ms, "transaction", end, None, end.state.name.lower(), details))
    for recall in found.recalls:
        status = "accepted" if recall.is_success else "refused"
        events.append(_row(recall.time_ms, "recall", recall, None, status, [recall.topic]))
    for one in found.consumptions:
        details = [f"retry {one.retry_times}"] if one.retry_times else []
        events.append(_row(one.time_ms, "consume", one, one.cost_ms, _status(one), details))
    return sorted(events, key=lambda event: event.time_ms)


def _row(
    time_ms: int | None, event: str, of: Any, cost_ms: int | None, status: str, details: list[str]
) -> _Row:
    shown = time_text(time_ms) if time_ms is not None else "?"
    cells: list[object] = [shown, event, of.group, of.client_host, cost_ms, status]
    return _Row(time_ms or 0, [*cells, ", ".join(details)])


def _status(one: TracedConsumption) -> str:
    if one.is_success is None:
        return "no end reported"
    if one.is_success:
        return "success"
    kind = one.outcome.name.lower() if one.outcome else "failed"
    return "failed" if kind == "failed" else f"failed ({kind})"


def _tree(value: Any) -> Any:
    """A value for JSON: members under RocketMQ's kind of names, enums by their names."""
    import msgspec

    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple):
        return [_tree(each) for each in value]
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: _tree(getattr(value, field.name))
            for field in msgspec.structs.fields(value)
        }
    return value
