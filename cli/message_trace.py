"""`trocket trace`: the timeline of one message, as its producers and consumers reported it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.terminal import say, show, time_text
from ..common.topic_names import TRACE_TOPIC
from .completion import topic_names
from .session import SHARED, Shared, ask_brokers, emit, end_with

if TYPE_CHECKING:
    from ..operations.timeline import Traced, TraceEvent

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
        emit(as_tree(found))
    else:
        from ..operations.timeline import timeline

        show(COLUMNS, map(cells, timeline(found)), title=found.message_id)
    if found.bad_count:
        say(f"trocket: {found.bad_count} records in {trace_topic} cannot be read")
    end_with(error)


def cells(event: TraceEvent) -> list[object]:
    """An event's cells of COLUMNS."""
    shown = "?" if event.time_ms is None else time_text(event.time_ms)
    of = (event.kind, event.group, event.client_host, event.cost_ms)
    return [shown, *of, _status(event), ", ".join(_details(event.report))]


def _status(event: TraceEvent) -> str:
    outcome = getattr(event.report, "outcome", None)
    if event.status == "failed" and outcome and outcome.name != "FAILED":
        return f"failed ({outcome.name.lower()})"
    return event.status


def _details(report: Traced) -> Iterator[str]:
    from ..client import TracedConsumption, TracedRecall, TracedSend

    if isinstance(report, TracedConsumption):
        if report.retry_times:
            yield f"retry {report.retry_times}"
        return
    if isinstance(report, TracedRecall):
        yield report.topic
        return
    yield f"{report.topic} on {report.store_host}"
    if isinstance(report, TracedSend):
        yield f"{report.body_length} bytes"
        if report.kind.name != "NORMAL":
            yield report.kind.name.lower()
        if report.tags:
            yield f"tags={report.tags}"
        if report.keys:
            yield f"keys={report.keys}"
    elif report.is_from_check:
        yield "asked for"


def as_tree(value: Any) -> Any:
    """A value for JSON: members under RocketMQ's kind of names, enums by their names."""
    import msgspec

    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple):
        return [as_tree(each) for each in value]
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: as_tree(getattr(value, field.name))
            for field in msgspec.structs.fields(value)
        }
    return value
