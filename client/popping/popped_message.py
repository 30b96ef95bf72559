"""The messages that a simple consumer receives, and what all popped messages have in common.

Java counterpart: MessageExt with the property POP_CK.
"""

from __future__ import annotations

from ...common import message_properties as names
from ...remoting.bodies import MessageQueue
from ...remoting.message import MessageExt
from ...remoting.number_fields import parse_integer
from ...remoting.pop_requests import Settled
from ...remoting.receipt import Receipt
from ..checks.shown import shown
from ..errors import AlreadySettledError, ConfigurationError
from ..messages.message import ReceivedMessage


def first_pop_time_ms(ext: MessageExt, receipt: Receipt) -> int:
    """Time of a message's first pop, in milliseconds since 1970.

    The broker writes it into the copy that it makes when a message was not acknowledged in time.
    """
    kept = parse_integer(ext.find(names.PROPERTY_FIRST_POP_TIME.encode()) or "")
    return receipt.pop_time if kept is None else kept


def queue_of(settled: Settled, group: str) -> MessageQueue:
    """The queue that a popped message was in: of the topic, or of the group's retry topic.

    Args:
      settled: the popped topic, and the message's receipt.
      group: the consumer's, with namespace.
    """
    receipt = settled.receipt
    topic = receipt.form.real_topic(settled.topic, group)
    return MessageQueue(topic, receipt.broker_name, receipt.queue_id)


class PoppedMessage(ReceivedMessage):
    """A message that a simple consumer received; it belongs to no thread and no event loop.

    Args:
      ext: the decoded message, with its body decompressed.
      topic: the topic that was popped, without namespace.
      settled: the same with namespace, and the receipt.
      queue: the queue that it was in; a message that is delivered again was in a retry topic.
      deadline_s: when it becomes visible again, by the consumer's `Client.now_s`.
    """

    __slots__ = ("_deadline_s", "_is_settled", "_settled")

    def __init__(
        self, ext: MessageExt, topic: str, settled: Settled, queue: MessageQueue, deadline_s: float
    ) -> None:
        super().__init__(ext, queue, topic)
        self._settled = settled
        self._deadline_s = deadline_s
        self._is_settled = False

    @property
    def receipt(self) -> str:
        """The string by which the broker knows this delivery.

        `change_invisible` replaces it.
        """
        return self._settled.receipt.to_text()

    @property
    def first_pop_time_ms(self) -> int:
        """Time of its first pop, in milliseconds since 1970, by the broker's clock."""
        return first_pop_time_ms(self._ext, self._settled.receipt)

    @property
    def invisible_until_ms(self) -> int:
        """Until when the broker gives it to no one else, in milliseconds since 1970, by the
        broker's clock."""
        return self._settled.receipt.revive_time

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged."""
        return self._is_settled

    # For its consumer

    def check_unsettled(self, verb: str) -> None:
        """Not meant for programs.

        Raises: AlreadySettledError: it was acknowledged; `verb` is what was called.
        """
        if self._is_settled:
            raise AlreadySettledError(self.message_id, "acknowledged", verb)

    @property
    def settled(self) -> Settled:
        """What the broker needs to know to settle it; not meant for programs."""
        return self._settled

    @property
    def deadline_s(self) -> float:
        """When it becomes visible again, by `Client.now_s`; not meant for programs."""
        return self._deadline_s

    def on_acknowledged(self) -> None:
        """Called when the broker has acknowledged it; not meant for programs."""
        self._is_settled = True

    def on_changed(self, receipt: Receipt, deadline_s: float) -> None:
        """Called when its invisible time was changed; not meant for programs."""
        self._settled = self._settled._replace(receipt=receipt)
        self._deadline_s = deadline_s


def check_settling(message: object, verb: str) -> None:
    """Check what a program gives to a verb of a simple consumer that settles a message.

    Raises:
      ConfigurationError: it is no message that a simple consumer received.
      AlreadySettledError: it was acknowledged.
    """
    if isinstance(message, PoppedMessage):
        message.check_unsettled(verb)
        return
    text = f"{verb} takes a message that a SimpleConsumer received, and got {shown(message)}"
    if isinstance(message, list | tuple) and verb == "ack":
        text += ": write ack_all(messages)"
    elif isinstance(message, ReceivedMessage):
        text += ": a PushConsumer's message has ack(), a PullConsumer commit()"
    else:
        text += f": write {verb}(message{', seconds' if verb == 'change_invisible' else ''})"
    raise ConfigurationError(text)
