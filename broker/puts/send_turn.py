"""SendTurn: buffers the answers of one turn's sends until the store has committed them.

A send's answer is built at once but kept until the end of the turn, when the store has written
everything that the turn appended; under SYNC_FLUSH until the fsync returned, and on a SYNC_MASTER
until slaves have it. If the fsync or the slaves fail, the answer is the same with another code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from ...common.supervision import FailureLog
from ...disk.errors import StoreIOError
from ...remoting.answer_template import AnswerTemplate
from ...remoting.channel import Channel
from ...remoting.codec import (
    FrameDecoder,
    RemotingCommand,
    SerializeType,
    decode_frame,
    encode,
    frame_start,
)
from ...remoting.errors import RequestRefused
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.config import MessageStoreConfig
from ...store.message_store import MessageStore
from ...store.offsets import PhysicalOffset
from ...store.status import PutMessageStatus, PutRefusal
from ...store.writing.run_appender import AppendedRun

# Answers to clients whose message the store refused.
#
# Java counterpart: broker/processor/SendMessageProcessor.java handlePutMessageResult of 5.3.3.
# Pure.


def refusal_of_put(refusal: PutRefusal, config: MessageStoreConfig) -> RequestRefused:
    """The answer to a put that stored nothing."""
    status, remark = refusal
    if status in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED):
        # The broker adds properties, so a message may be refused that seems to be within 32 KB.
        is_long = status is PutMessageStatus.PROPERTIES_SIZE_EXCEEDED and remark
        own = f" With those that the broker adds it has {remark}." if is_long else ""
        return RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body "
            f"length limit {config.max_message_size}B, msg properties length limit 32KB.{own}",
        )
    why = f" ({remark})" if remark else ""
    if status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
        # Apache's remark lists possible causes: a full disk, a slave, a store that was shut down.
        reason = remark or "the message store has been shut down"
        return RequestRefused(
            ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {reason}"
        )
    if status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
        return RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"create mapped file failed, server is busy or broken.{why}"
        )
    if status is PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
        return RequestRefused(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    if status is PutMessageStatus.OS_PAGE_CACHE_BUSY:
        return RequestRefused(
            ResponseCode.SYSTEM_BUSY,
            "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
        )
    if status is PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL:
        return RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{config.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time should be "
            "bigger than the current time",
        )
    if status is PutMessageStatus.WHEEL_TIMER_NOT_ENABLE:
        return RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
    return RequestRefused(ResponseCode.SYSTEM_ERROR, f"{status.name}{why}")


logger = logging.getLogger(__name__)

_CODES: Final[Mapping[PutMessageStatus, ResponseCode]] = {
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""The code of an answer whose message is stored, but not fsynced or replicated as configured."""

_JSON: Final = int(SerializeType.JSON)

_SENDS: Final = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)


_Request = RemotingCommand | AppendedRun
"""A request, or a run of sends, whose answers are one after the other in one piece of bytes."""

_Answers = tuple[Channel, list[tuple[_Request, bytes]]]
"""A connection, and its requests of a turn with their answers."""


class CommitListener(Protocol):
    """Takes part in each turn's commit."""

    def before_commit(self) -> None:
        """Append what belongs to the turn's messages."""

    def after_commit(self, is_stored: bool) -> None:
        """Record whether the turn's messages are stored."""


class SendTurn:
    """Collects the sends of a turn, which may be of several connections, and ends it.

    All processors that store messages share the broker's turn: `begin` before a put, `accept` or
    `answer` after it. `end_turn` must be called at the end of every turn of the server, before its
    answers leave.

    Args:
      store: already loaded.
      listener: called before and after each turn's commit.
      on_messages: called with the queues that have new messages, in the turn that made them
        visible.
      store_host: address that goes into message ids, as `host_bytes` packs it.
      constants: fields of every answer to a send.
      held_max: answers that may wait for the disk at a time (sendThreadPoolQueueCapacity).
      note_commit: called with the seconds that each commit took, and the number of its sends.

    Attributes:
      channel: the connection whose requests are being served; None: the turn has none yet.
      id_prefix: `store_host` in hexadecimal digits, with which each message id begins.
      store_host, answer_constants: `store_host` and `constants`, for processors that build answers.
    """

    def __init__(
        self,
        store: MessageStore,
        listener: CommitListener,
        on_messages: Callable[[Collection[tuple[str, int]]], None],
        *,
        store_host: bytes,
        constants: Mapping[str, str],
        held_max: int,
        note_commit: Callable[[float, int], None],
    ) -> None:
        self._failures = FailureLog(logger)
        self._held = 0
        self._store = store
        self._now_s = store.clock.monotonic_s
        self._note_commit = note_commit
        self._answers_later = store.answers_later
        self._may_be_cut = store.durability.in_sync is not None
        self._listener = listener
        self._on_messages = on_messages
        self.store_host = store_host
        self.id_prefix = store_host.hex().upper().encode("ascii")
        self.channel: Channel | None = None
        self._senders: list[tuple[Channel, int]] = []  # with the index of its first answer
        self._requests: list[_Request] = []
        self._answers: list[bytes] = []
        self._waiting: list[int] = []  # answers that wait for disk and slaves: 0, 1, those of a run
        self._when_written: list[Callable[[bool], None]] = []
        self.change_settings(constants, held_max)

    def change_settings(self, constants: Mapping[str, str], held_max: int) -> None:
        """Use other values of these arguments for the requests that come from now on."""
        self._held_max = held_max
        self.answer_constants = dict(constants)
        self._ok = AnswerTemplate(
            ("msgId", "queueId", "queueOffset"), constants=self.answer_constants
        )
        self._ok_half = AnswerTemplate(
            ("msgId", "queueId", "queueOffset", "transactionId"), constants=self.answer_constants
        )
        before_id, *between, before_opaque, end = (
            part.replace(b"%", b"%%") for part in self._ok_half.json_parts
        )
        before_queue, before_offset, before_key = between
        # One step for the whole header: a third of the time of `encode_all`.
        self._json_half = (
            b"%b%b%%016X%b%%d%b%%d%b%%b%b%%d%b" % (
                before_id, self.id_prefix, before_queue, before_offset, before_key, before_opaque,
                end,
            )
        )  # fmt: skip

    @property
    def is_overloaded(self) -> bool:
        """Whether too many answers wait for the disk: each keeps its request in memory."""
        return self._held >= self._held_max

    def begin(self, channel: Channel) -> None:
        """Start serving the requests of a connection in this turn.

        Raises: RequestRefused: SYSTEM_BUSY if too many answers wait for the disk.
        """
        if channel is self.channel:
            return
        if self.is_overloaded:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while"
            )
        if self.channel is None:
            self._store.begin_burst()
        self.channel = channel
        self._senders.append((channel, len(self._requests)))

    def when_written(self, callback: Callable[[bool], None]) -> None:
        """Call back when the turn, which must have begun, is written, or could not be.

        Args:
          callback: called with whether its messages are stored, before any answer leaves.
        """
        self._when_written.append(callback)

    def accept(
        self,
        request: RemotingCommand,
        queue_id: int,
        physical_offset: int,
        queue_offset: int,
        waits: bool,
    ) -> None:
        """Keep the answer to a send until the turn's end.

        Args:
          queue_id: for the answer.
          physical_offset, queue_offset: of the stored message.
          waits: whether the answer waits for disk and slaves.
        """
        answer = (
            b""  # oneway
            if request.flag & 2
            else self._ok.encode(
                request.opaque,
                request.serialize_type,
                b"%b%016X" % (self.id_prefix, physical_offset),
                b"%d" % queue_id,
                b"%d" % queue_offset,
            )
        )
        # `_keep`, whose call the hottest path saves.
        self._requests.append(request)
        self._waiting.append(waits)
        self._answers.append(answer)

    def accept_batch(
        self, request: RemotingCommand, queue_id: int, ids: str, queue_offset: int, waits: bool
    ) -> None:
        """`accept` for a batch whose header is JSON.

        Args:
          ids: of all its messages; ASCII.
        """
        answer = b""
        if not request.flag & 2:  # not oneway
            values = ids.encode(), b"%d" % queue_id, b"%d" % queue_offset
            answer = self._ok.encode(request.opaque, _JSON, *values)
        self._keep(request, answer, waits)

    @property
    def answer_parts(self) -> tuple[bytes, ...]:
        """What all answers of `accept` with a binary header share."""
        return self._ok.binary_parts

    @property
    def json_answer_parts(self) -> tuple[bytes, ...]:
        """What all answers of `accept` with a JSON header share."""
        return self._ok.json_parts

    def accept_run(self, run: AppendedRun) -> None:
        """Keep the answers to a run of sends, all of which wait for disk and slaves."""
        self._keep(run, run.answers, run.send_count)

    def accept_half(
        self,
        request: RemotingCommand,
        queue_id: int,
        physical_offset: int,
        queue_offset: int,
        unique_key: bytes,
        waits: bool,
    ) -> None:
        """`accept` for a half message.

        Args:
          unique_key: ASCII letters and digits, at most 255.
        """
        answer = b""
        if not request.flag & 2:  # not oneway
            answer = self.half_answer(
                request.opaque, request.serialize_type, queue_id, physical_offset, queue_offset,
                unique_key,
            )  # fmt: skip
        self._keep(request, answer, waits)

    def half_answer(
        self,
        opaque: int,
        serialize_type: int,
        queue_id: int,
        physical_offset: int,
        queue_offset: int,
        unique_key: bytes,
    ) -> bytes:
        """The answer to a half message; see `accept_half`."""
        if serialize_type == _JSON:
            header = self._json_half % (
                physical_offset, queue_id, queue_offset, unique_key, opaque
            )  # fmt: skip
            return frame_start(len(header), 0, _JSON) + header
        return self._ok_half.encode_all(
            opaque,
            serialize_type,
            (
                b"%b%016X" % (self.id_prefix, physical_offset),
                b"%d" % queue_id,
                b"%d" % queue_offset,
                unique_key,
            ),
        )

    def answer(self, request: RemotingCommand, answer: RemotingCommand, waits: bool) -> None:
        """Keep any answer until the turn's end; `waits` as for `accept`."""
        self._keep(request, b"" if request.is_oneway else encode(answer), waits)

    def accept_oneway(self, request: RemotingCommand, waits: bool) -> None:
        """Count a request without an answer as one of the turn's; `waits` as for `accept`."""
        self._keep(request, b"", waits)

    def _keep(self, request: _Request, answer: bytes, waits: int) -> None:
        """Keep an encoded answer; `waits` is the number of answers that wait.

        Encoded by the caller: an error must not leave the three lists of different lengths.
        """
        self._requests.append(request)
        self._waiting.append(waits)
        self._answers.append(answer)

    def answer_send(self, request: RemotingCommand, fields: dict[str, str], waits: bool) -> None:
        """Keep the answer to a send that has more fields than `accept` writes."""
        answer = request.answer(ResponseCode.SUCCESS, None, fields | self.answer_constants)
        self.answer(request, answer, waits)

    def change_last_answer(self, change: Callable[[dict[str, str]], None]) -> None:
        """Change the fields of the answer that was kept last; a oneway request has none.

        Args:
          change: changes the fields in place.
        """
        if not self._answers[-1]:
            return
        answer = decode_frame(self._answers[-1])
        fields = dict(answer.ext_fields)
        change(fields)
        answer.ext_fields = fields
        self._answers[-1] = encode(answer)

    def end_turn(self) -> None:
        """Commit the messages of the turn, wake pulls that wait for them, release the answers."""
        if self.channel is None:
            return
        self.channel = None
        senders, self._senders = self._senders, []
        # Commit even without answers: a request may have failed after its message was appended.
        requests, self._requests = self._requests, []
        answers, self._answers = self._answers, []
        waiting, self._waiting = self._waiting, []
        try:
            self._commit_and_answer(senders, requests, answers, waiting)
        except Exception as error:  # noqa: BLE001 - our bug: the next turn is served
            self._abort(senders, error)

    def _abort(self, senders: list[tuple[Channel, int]], error: Exception) -> None:
        """End a turn that failed with an unexpected error."""
        meaning = "The connections of its senders are closed, and they send again"
        self._failures.note("a turn of sends", meaning, error)
        self._store.roll_back()
        self._written(False)
        # Without an answer, but with the connections closed: the senders send again at once, and do
        # not wait for a time-out.
        for channel, _ in senders:
            channel.close("the turn of its sends failed")

    def _written(self, is_stored: bool) -> None:
        self._listener.after_commit(is_stored)
        if self._when_written:
            callbacks, self._when_written = self._when_written, []
            for callback in callbacks:
                callback(is_stored)

    def _commit_and_answer(
        self,
        senders: list[tuple[Channel, int]],
        requests: list[_Request],
        answers: list[bytes],
        waiting: list[int],
    ) -> None:
        self._listener.before_commit()
        started_s = self._now_s()
        try:
            arrivals = self._store.commit()
        except StoreIOError as error:
            self._written(False)
            count = sum(r.send_count if isinstance(r, AppendedRun) else 1 for r in requests)
            logger.error(
                "%(count)d sends were not stored: %(error)s", {"count": count, "error": error}
            )
            remark = self._store.trouble or str(error)
            refusal = self.refusal(PutRefusal(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark))
            answers = [_refused(request, refusal) for request in requests]
        else:
            self._note_commit(self._now_s() - started_s, sum(waiting))
            self._written(True)
            if arrivals:
                self._on_messages(arrivals)
            if self._answers_later and any(waiting):
                self._answer_when_safe(senders, requests, answers, waiting)
                return
        if not requests:
            return
        # Answers lie in the order of their senders: one write for each connection.
        if len(senders) == 1:
            senders[0][0].write_all(answers)
        else:
            ends = [start for _, start in senders[1:]] + [len(answers)]
            for (channel, start), end in zip(senders, ends, strict=True):
                channel.write_all(answers[start:end])

    def _answer_when_safe(
        self,
        senders: list[tuple[Channel, int]],
        requests: list[_Request],
        answers: list[bytes],
        waiting: list[int],
    ) -> None:
        """Release the answers that need not wait for disk and slaves; the others together later."""
        ends = [start for _, start in senders[1:]] + [len(answers)]
        later: list[_Answers] = []
        count = sum(waiting)
        self._held += count
        for (channel, start), end in zip(senders, ends, strict=True):
            turn = range(start, end)
            channel.write([answers[at] for at in turn if not waiting[at]])
            later.append((channel, [(requests[at], answers[at]) for at in turn if waiting[at]]))

        def safe(status: PutMessageStatus) -> None:
            self._held -= count
            for channel, held in later:
                channel.write(
                    [_as(status, request, answer, self._may_be_cut) for request, answer in held]
                )

        # Up to the end of the turn, including the op message that its commit appended.
        self._store.when_replicated(PhysicalOffset(self._store.max_physical_offset - 1), safe)

    def refusal(self, refusal: PutRefusal) -> RequestRefused:
        """The answer to a put that stored nothing."""
        return refusal_of_put(refusal, self._store.config)


def _refused(request: _Request, refusal: RequestRefused) -> bytes:
    """The answers that replace those of a request whose turn could not be written."""
    if isinstance(request, AppendedRun):
        # The answers have the opaques and serializations; oneway sends have none.
        answers = FrameDecoder().receive_data(request.answers)
        return b"".join([encode(each.answer(refusal.code, refusal.remark)) for each in answers])
    return b"" if request.is_oneway else encode(request.answer(refusal.code, refusal.remark))


def _as(status: PutMessageStatus, request: _Request, answer: bytes, may_be_cut: bool) -> bytes:
    """The answer with the code for a message that is stored, but not fsynced or replicated.

    Args:
      may_be_cut: another master may take back what is not replicated.

    Source: EndTransactionProcessor.sendFinalMessage.
    """
    code = _CODES.get(status)
    if code is None or not answer:  # safe, or oneway
        return answer
    if isinstance(request, AppendedRun):
        commands = FrameDecoder().receive_data(answer)
        for command in commands:
            command.code = code
        return b"".join(map(encode, commands))
    # A client that sent a message back, or ended a transaction, would repeat the request if it got
    # the code for a missing slave. RocketMQ does not wait at all for messages that are sent back.
    # In controller mode it must repeat it: the consumer would commit past a message that is cut.
    is_kept = code != ResponseCode.FLUSH_DISK_TIMEOUT and not may_be_cut
    if is_kept and request.code not in _SENDS:
        return answer
    command = decode_frame(answer)
    command.code = code
    return encode(command)
