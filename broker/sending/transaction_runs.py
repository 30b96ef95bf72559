"""Runs of transactions: half messages and their ends, one after the other in a burst, which the C
extension takes out of their frames.

The extension only reads the frames. `SendMessageProcessor` and `EndTransactionProcessor` serve all
others, and are the specification of these.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...common.topic_names import SYSTEM_TOPIC_PREFIX
from ...native import Extension
from ...remoting.channel import Channel
from ...remoting.codec import HEADER_SIZE_MAX, decode_frame, encode
from ...remoting.connection import system_error
from ...remoting.request_codes import RequestCode
from ...remoting.request_times import RUN_CODE
from ...remoting.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from ...store.message_store import MessageStore
from ...store.writing.run_appender import AppendedRun
from ..messages.half_messages import half_traits, is_usual_key
from ..puts.added_properties import AddedProperties
from ..settings.config import BrokerConfig
from ..transactions.cached_ends import CachedEnds
from ..transactions.send_half import HalfPuts, UsualHalves
from .send_topics import SendTopics

END_CODE: Final = int(RequestCode.END_TRANSACTION)
_KINDS: Final = frozenset({TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE})


class HalfFrame(msgspec.Struct, gc=False):
    """A half message, as the extension read it from its frame; it wants an answer.

    Attributes:
      end: the position after the frame.
      properties: with those that the broker adds.
      other_properties: the same without the value of the unique key; see `half_traits`.
    """

    end: int
    opaque: int
    serialize_type: int
    topic: str
    queue_id: int
    born_timestamp_ms: int
    sys_flag: int
    properties: bytes
    other_properties: bytes
    unique_key: bytes
    body: bytes


class EndFrame(msgspec.Struct, gc=False):
    """The end of a transaction, as the extension read it from its frame; it wants no answer.

    Attributes:
      end: the position after the frame.
      half_offset, queue_offset: of the half message in the log and in its queue.
      outcome: commitOrRollback.
      transaction_id: empty: none.
    """

    end: int
    half_offset: int
    queue_offset: int
    outcome: int
    group: str
    transaction_id: str


class TransactionRunProcessor:
    """Stores half messages and ends transactions, and has the turn answer them.

    Args:
      native: the C extension.
      topics: of the broker, which accepts messages for ordered topics, too.
      added: the properties that the broker adds to each message.
    """

    def __init__(
        self,
        native: Extension,
        config: BrokerConfig,
        store: MessageStore,
        halves: HalfPuts,
        topics: SendTopics,
        added: AddedProperties,
    ) -> None:
        self._take = native.take_transactions
        self._turn = halves.puts.turn
        self._counts = halves.transactions.counts
        self._counts.is_judged = True
        self._usual = UsualHalves(config, store, halves, added)
        self._ends = CachedEnds(store, halves)
        self._topics, self._added = topics, added
        self._topic_table, self._checked = topics.table, topics.checked
        self.settings_changed()

    def settings_changed(self) -> None:
        """Copy what each run reads; call it after that of the topics."""
        self._is_read_only = self._topics.is_read_only

    def process_run(
        self,
        data: bytes,
        position: int,
        frame_size_max: int,
        channel: Channel,
        counts: dict[int, int],
    ) -> int:
        """Serve the run at a position of received bytes; see `RunProcessor.serve`."""
        if self._is_read_only:  # each request is checked, one by one
            return 0
        taken: list[HalfFrame | EndFrame] = []
        try:
            self._take(
                HalfFrame, EndFrame, self._added.first, HEADER_SIZE_MAX, data, position,
                frame_size_max, taken,
            )  # fmt: skip
        except Exception:
            self._counts.failed += 1
            raise
        return self._serve(taken, data, position, channel, counts) if taken else 0

    def _serve(
        self,
        taken: list[HalfFrame | EndFrame],
        data: bytes,
        position: int,
        channel: Channel,
        counts: dict[int, int],
    ) -> int:
        """Serve frames up to one that is not usual. Returns: their size."""
        end, end_count = position, 0
        answers: list[bytes] = []
        for frame in taken:
            try:
                if type(frame) is HalfFrame:
                    answer = self._put_half(frame, channel)
                    if answer is None:
                        break
                    answers.append(answer)
                elif type(frame) is EndFrame and self._end(frame, channel):
                    end_count += 1
                else:
                    break
            except MemoryError:
                raise  # the connection is closed
            except Exception as error:  # noqa: BLE001 - our bug: other requests are served
                # Not served again one by one: what failed may have stored a message already.
                self._turn.begin(channel)
                request = decode_frame(data[end : frame.end])
                refusal = system_error(request, channel, error)
                answers.append(b"" if request.is_oneway else encode(refusal))
            end = frame.end
        count = len(answers) + end_count
        if not count:
            return 0
        self._turn.accept_run(AppendedRun(end - position, count, b"".join(answers)))
        self._counts.taken += count
        if answers:
            counts[RUN_CODE] = counts.get(RUN_CODE, 0) + len(answers)
        if end_count:
            counts[END_CODE] = counts.get(END_CODE, 0) + end_count
        return end - position

    def _begin(self, channel: Channel) -> bool:
        """Begin the turn of a connection. Returns: False: its requests are refused, one by one."""
        turn = self._turn
        if channel is not turn.channel:
            if turn.is_overloaded:
                return False
            turn.begin(channel)
        return True

    def _put_half(self, frame: HalfFrame, channel: Channel) -> bytes | None:
        """Store a half message. Returns: its answer; None: it is not usual, and not stored."""
        topic, queue_id, body = frame.topic, frame.queue_id, frame.body
        properties, unique_key = frame.properties, frame.unique_key
        config = self._topic_table.get(topic)
        if (
            config is None
            or topic in self._checked
            # Revive topics among them: messages may be delivered there, but not sent.
            or topic.startswith(SYSTEM_TOPIC_PREFIX)
            or queue_id >= config.write_queue_nums
            or not self._begin(channel)
            or not is_usual_key(unique_key)
            or not self._usual.may_put(topic, len(body), len(properties))
        ):
            return None
        traits = half_traits(frame.other_properties)
        # The answers of a run all wait for disk and slaves.
        if traits is None or not traits[2]:
            return None
        refusal, physical_offset, queue_offset = self._usual.put(
            topic, queue_id, body, properties, unique_key, traits,
            born_timestamp_ms=frame.born_timestamp_ms, born_host=channel.remote_host,
            sys_flag=frame.sys_flag,
        )  # fmt: skip
        if refusal is not None:
            return None
        return self._turn.half_answer(
            frame.opaque, frame.serialize_type, queue_id, physical_offset, queue_offset, unique_key
        )

    def _end(self, frame: EndFrame, channel: Channel) -> bool:
        """End a transaction. Returns: False: it is not usual, and nothing has changed."""
        kind = frame.outcome
        half = self._ends.find(
            frame.half_offset, frame.queue_offset, frame.group, frame.transaction_id
        )
        return (
            half is not None
            and half.waits
            and kind in _KINDS
            and self._begin(channel)
            and self._ends.end(half, kind) is None
        )
