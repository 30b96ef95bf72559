"""OpenTelemetry spans for sent and consumed messages; `pip install 'trocket[opentelemetry]'`.

The trace context is sent in the properties of the message (`traceparent` and `baggage`, or those of
the configured propagator), so consumers in any language can continue the trace.

Source of the names: OpenTelemetry's semantic conventions for messaging.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from ..common.distribution import to_install

try:
    from opentelemetry import propagate, trace
    from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"trocket.client.opentelemetry needs {_error.name}: {to_install('opentelemetry')}",
        name=_error.name,
    ) from _error

from .messages.interceptor import Interceptor
from .messages.message import Message, ReceivedMessage, SendResult

SYSTEM = "rocketmq"


class TracingInterceptor(Interceptor):
    """Creates a span for each send, and for each delivery until the message is settled.

    Use: `Producer(url, interceptors=[TracingInterceptor()])`, and the same for consumers.

    Args:
      provider: provider of the tracer; None: the global one.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("trocket", tracer_provider=provider)
        # By object id: the second hook gets the same message object as the first one.
        self._sending: dict[int, Span] = {}
        self._consuming: dict[int, Span] = {}

    def before_send(self, message: Message) -> Message:
        """Begin a span as a child of the current one, and add its context to the message."""
        span = self._tracer.start_span(
            f"send {message.topic}",
            kind=SpanKind.PRODUCER,
            attributes={
                "messaging.system": SYSTEM,
                "messaging.operation.type": "send",
                "messaging.destination.name": message.topic,
            },
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        marked = msgspec.structs.replace(message, properties={**message.properties, **carrier})
        self._sending[id(marked)] = span
        return marked

    def after_send(
        self, message: Message, result: SendResult | None, error: Exception | None
    ) -> None:
        """End its span."""
        span = self._sending.pop(id(message), None)
        if span is None:
            return
        if result is not None:
            span.set_attribute("messaging.message.id", result.message_id)
            span.set_attribute("messaging.rocketmq.queue_id", result.queue.queue_id)
            span.set_attribute("messaging.rocketmq.queue_offset", result.queue_offset)
        _end(span, error)

    def before_consume(self, message: ReceivedMessage) -> None:
        """Begin a span that continues the sender's trace."""
        self._consuming[id(message)] = self._tracer.start_span(
            f"process {message.topic}",
            context=propagate.extract(message.properties),
            kind=SpanKind.CONSUMER,
            attributes={
                "messaging.system": SYSTEM,
                "messaging.operation.type": "process",
                "messaging.destination.name": message.topic,
                "messaging.message.id": message.message_id,
                "messaging.rocketmq.queue_id": message.queue_id,
                "messaging.rocketmq.queue_offset": message.queue_offset,
                "messaging.rocketmq.reconsume_times": message.reconsume_times,
            },
        )

    def after_consume(self, message: ReceivedMessage, error: Exception | None) -> None:
        """End its span."""
        span = self._consuming.pop(id(message), None)
        if span is not None:
            _end(span, error)

    @contextmanager
    def current(self, message: ReceivedMessage) -> Iterator[Span]:
        """Make the span of a message the current span inside a `with` block.

        If the message has no span, because it is settled or was not delivered with this
        interceptor, the current span does not change.
        """
        span = self._consuming.get(id(message))
        if span is None:
            yield trace.get_current_span()
            return
        with trace.use_span(span, end_on_exit=False):
            yield span


def _end(span: Span, error: Exception | None) -> None:
    if error is not None:
        span.record_exception(error)
        span.set_status(StatusCode.ERROR, str(error))
    span.end()
