"""Spans of sends and consumptions, with OpenTelemetry's own SDK."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trocket import (
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    SendError,
)
from trocket.client.opentelemetry import TracingInterceptor
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.testing import Broker

from .conftest import Play


def test_a_trace_goes_with_the_message(play: Play, broker: Broker, topic: str, group: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = TracingInterceptor(provider)
    tracer = provider.get_tracer("test")

    async def scenario() -> None:
        with tracer.start_as_current_span("caller"):
            async with Producer(broker.url, interceptors=[tracing]) as producer:
                sent = await producer.send(Message(topic, "a", properties={"own": "kept"}))
        async with PushConsumer(
            broker.url,
            group=group,
            subscriptions={topic: "*"},
            interceptors=[tracing],
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer:
            message = await consumer.receive()
            assert message.user_properties["own"] == "kept"
            with tracing.current(message):
                tracer.start_span("inside").end()
            message.ack()
            with tracing.current(message) as none:
                assert none is trace.INVALID_SPAN
        spans = {span.name: span for span in exporter.get_finished_spans()}
        caller, inside = spans["caller"], spans["inside"]
        send, process = spans[f"send {topic}"], spans[f"process {topic}"]
        assert send.parent == caller.context
        assert process.parent is not None
        assert process.parent.span_id == send.context.span_id
        assert inside.parent == process.context
        assert {span.context.trace_id for span in spans.values()} == {caller.context.trace_id}
        assert send.attributes is not None
        assert send.attributes["messaging.message.id"] == sent.message_id

    play(scenario)


def test_what_failed_is_marked(play: Play, broker: Broker, topic: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def scenario() -> None:
        tracing = TracingInterceptor(provider)
        async with Producer(broker.url, interceptors=[tracing], retry_times=0) as producer:
            refusal = (RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY, "no")
            broker.faults.refuse(*refusal)
            with pytest.raises(SendError):
                await producer.send(Message(topic, "a"))
        (span,) = exporter.get_finished_spans()
        assert span.status.status_code is trace.StatusCode.ERROR
        assert "no" in (span.status.description or "")

    play(scenario)
