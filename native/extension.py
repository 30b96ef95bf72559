"""Extension: the functions of the C extension, as Python calls them.

Each does the usual case of a function in pure Python, which is its specification, stands beside its
use, and is named below. "Not for me" means: nothing was changed, and the pure function must do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from .objects import HeldPullLike, PullLike


class Extension(Protocol):
    """The module `trocket.native._native`; arguments are positional.

    Attributes:
      sources_crc: checksum of the sources that it was built from.
      QueueState: see `queue_state.py`.
      attributes: the names of attributes of Python's objects that it uses; see `objects.py`.
    """

    sources_crc: int
    attributes: tuple[str, ...]
    QueueState: type[Any]

    def decode_frames(
        self,
        command_class: type,
        no_fields: Mapping[str, str],
        languages: dict[str, int],
        header_size_max: int,
        fields_max: int,
        data: bytes,
        position: int,
        frame_size_max: int,
        has_runs: bool,
        commands: list[Any],
        /,
    ) -> int:
        """Decode frames from a position on, but not remarks, and not pulls with a binary header.

        Args:
          languages: codes by the names that JSON headers have.
          has_runs: stop before a frame that can begin a run of `pack_sends` or
            `take_transactions`.

        Returns: the position of the first byte that is not decoded: of an incomplete frame, or of
          one that is not for me; where a run may begin, `~position`. Pure: `codec.FrameDecoder`.
        """

    def decode_records(
        self, message_class: type, data: Any, position: int, messages: list[Any], /
    ) -> int:
        """Decode plain records (V1, IPv4 hosts, not compressed) from a position on.

        Returns: the position of the first byte that is not decoded: of the end, or of a record
          that is not for me. Pure: `message_codec.decode_messages`.
        """

    def find_property(self, properties: bytes, name: bytes, /) -> bytes | None:
        """One property's value. Pure: `message_properties.find_property`."""

    def index_entries(self, items: list[tuple[int, bytes, int, int]], /) -> tuple[bytes, int]:
        """Pack the entries of messages for the index. Pure: `index_entries.entries_of_items`.

        Args:
          items: `IndexItem`s.

        Returns: the entries for `index_put`, and the number of items done; fewer than given: the
          next one is not for me.
        """

    def index_put(
        self,
        slots: memoryview,
        slot_count: int,
        index_count: int,
        index_count_max: int,
        begin_ms: int,
        entries: bytes,
        first: int,
        /,
    ) -> tuple[bytes, int, int]:
        """Enter entries into the slots of an index file. Pure: `IndexFile.put_many`.

        Args:
          slots: the file's table, int32; it is changed.
          entries: packed by this extension.
          first: the number of the first one to enter.

        Returns: the bytes for the file, the number of entered entries, and how many of their slots
          were free.
        """

    def is_plain_batch(self, body: bytes, /) -> bool:
        """Whether a batch has no "DELAY", and no "_" but in "UNIQ_KEY\\1".

        Pure: `admission.may_break_batch_rules`.
        """

    def pack_batch(
        self,
        body: bytes,
        added: bytes,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        file_end: int,
        topic_field: bytes,
        topic_hash: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        store_host: bytes,
        reconsume_times: int,
        /,
    ) -> tuple[bytes, bytes, list[Any], bytes] | None:
        """Pack a batch. Pure: `MessageAppender._put_usual_batch`.

        Returns: the records, the units, the physical offsets, and the entries for `index_put`;
          None: not for me.
        """

    def pack_put(
        self,
        queue: Any,
        queue_id: int,
        body: bytes,
        properties: bytes,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_offset: int,
        physical_offset: int,
        file_end: int,
        tags_code: int,
        touched: list[Any],
        /,
    ) -> bytes | None:
        """Pack the record of one message of a plain queue, and append its unit.

        Pure: `MessageAppender.put_message`.

        Args:
          queue: a QueueState; it is appended to `touched` if this is its first new unit.

        Returns: the record; None: not for me, or it has no room.
        """

    def fill_answer(
        self,
        parts: tuple[bytes, ...],
        opaque: int,
        first: bytes,
        second: bytes,
        third: bytes,
        body_size: int,
        /,
    ) -> bytes:
        """An answer's frame with a binary header. Pure: `AnswerTemplate.encode`."""

    def batch_ids(self, prefix: bytes, offsets: list[Any], /) -> str:
        """The ids of a batch's messages. Pure: `send_batch.batch_ids`.

        Args:
          prefix: the store host in hexadecimal digits, with which each id begins.
          offsets: physical offsets.
        """

    def pack_sends(
        self,
        rules: tuple[Any, ...],
        header_size_max: int,
        data: bytes,
        position: int,
        frame_size_max: int,
        born_host: bytes,
        store_ms: int,
        wall_ms: int,
        physical_offset: int,
        file_end: int,
        touched: list[Any],
        /,
    ) -> tuple[int, int, int, int, bytes, bytes, bytes] | None:
        """Store the run of plain sends and batches at a position of received bytes, or nothing of
        it.

        Units are appended to the queues, and queues to `touched`. Pure: `SendMessageProcessor`,
        `MessageAppender.put_message` and `SendTurn.accept`, one after the other; for batches
        `SendBatchProcessor`, `put_batch` and `accept_batch`.

        Args:
          rules: see `run_appender.SendRules`.
          store_ms: the store timestamp of the records.
          wall_ms: the time of day; delayed messages are due a delay after it.

        Returns: the bytes of the run's frames, the numbers of sends, of batches among them, and of
          messages, the records, the answers, and the entries for `index_put`; None: the first frame
          is not for me.
        """

    def pack_deliveries(
        self,
        queues: Mapping[Any, Any],
        topics: set[str],
        body_size_max: int,
        data: bytes,
        position: int,
        store_ms: int,
        physical_offset: int,
        file_end: int,
        touched: list[Any],
        /,
    ) -> tuple[int, int, bytes, bytes] | None:
        """Store the run of due messages at a position of joined records again, or nothing of it.

        Units are appended to the queues, and queues to `touched`. Pure:
        `ScheduleMessageService._deliver_one`.

        Args:
          queues: the store's, by topic and queue id.
          topics: that messages may be delivered to.
          body_size_max: bytes.

        Returns: the bytes of the run's records, the number of messages, the new records, and the
          entries for `index_put`; None: the first record is not for me.
        """

    def send_frame(
        self, start: bytes, prefix: bytes, born_ms: int, opaque: int, properties: bytes,
        body: bytes, /,
    ) -> bytes | None:  # fmt: skip
        """The frame of an unsigned send. Pure: `send_template.SendTemplate.encode`.

        Args:
          start: all before the fields; lengths and opaque are filled in.
          prefix: the encoded fields before time and properties.

        Returns: None: not for me.
        """

    def grpc_send(
        self, request: bytes, limits: tuple[frozenset[bytes], int, int, int], /
    ) -> tuple[str, int, int, str, str | None, bytes, bytes, int] | None:
        """Read a SendMessageRequest of one usual message. Pure: `sending.send_message`.

        Args:
          limits: see `rules.SendLimits`.

        Returns: topic, type, system flag, message id, message group, properties, body, the time of
          its birth in ms or 0; None: not for me.
        """

    def grpc_sent(self, status: bytes, message_id: str, offset: int, /) -> bytes:
        """The answer to a stored message. Pure: `answers.SendAnswers.encode`.

        Args:
          status: an encoded Status.
          offset: its queue offset.
        """

    def grpc_message(
        self,
        names: tuple[frozenset[bytes], frozenset[bytes]],
        topic: bytes,
        body: bytes,
        properties: bytes,
        queue_id: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        store_host: bytes,
        digest: str,
        handle: str,
        queue_offset: int,
        attempt: int,
        /,
    ) -> bytes | None:
        """A record as an encoded ReceiveMessageResponse. Pure: `messages.received_message`.

        Args:
          names: of reserved properties, and of those whose messages are not for me.
          topic: an encoded Resource.
          digest: MD5 of the body.

        Returns: None: not for me.
        """

    def grpc_ack(
        self, request: bytes, /
    ) -> tuple[str, str, str, str, tuple[int, int, int, int, int, str, int, int, int]] | None:
        """Read an AckMessageRequest of one entry. Pure: `receiving.ack_message`.

        Returns: group, topic, message id, handle, and the fields of the handle; None: not for me.
        """

    def grpc_acked(self, status: bytes, message_id: str, handle: str, /) -> bytes:
        """The answer to the acknowledgement of one message. Pure: protobuf.

        Args:
          status: an encoded Status, for the whole and the entry.
        """

    def take_pulls(
        self,
        classes: tuple[type, type, type[PullLike], type[HeldPullLike]],
        template: tuple[Any, ...],
        holding: tuple[Any, ...] | None,
        data: bytes,
        position: int,
        frame_size_max: int,
        commands: list[Any],
        held: list[Any],
        /,
    ) -> int:
        """Take the pulls of one template at a position of received bytes.

        Pure: `FrameDecoder`, `PullMessageProcessor.pull_message`, `PullRequestHoldService.hold`.

        Args:
          classes: RemotingCommand, PullFields, Pull, HeldPull.
          template: see `pull_templates.PullTemplate`.
          holding: see `pull_runs.Holding`; None: all become commands.
          commands: the first pull that is not for me is appended, and all after it.
          held: pulls that were held are appended.

        Returns: the position after the pulls.
        """

    def take_transactions(
        self,
        half_class: type,
        end_class: type,
        added: bytes,
        header_size_max: int,
        data: bytes,
        position: int,
        frame_size_max: int,
        taken: list[Any],
        /,
    ) -> None:
        """Read half messages and ends of transactions at a position of received bytes.

        Pure: `FrameDecoder`, `SendMessageProcessor` and `EndTransactionProcessor`, which have the
        rules.

        Args:
          half_class, end_class: see `transaction_runs.HalfFrame` and `EndFrame`.
          added: the properties that the broker appends to each message's.
          taken: gets an object for each frame, up to one that is not for me.
        """

    def join_records(
        self,
        units: bytes,
        view: memoryview,
        base: int,
        near_from: int,
        log_end: int,
        size_max: int,
        /,
    ) -> bytes | None:
        """Join small records that are apart from each other in one file of the log.

        Pure: `MessageReader._collect_recent`.

        Args:
          view, base: the map of the file, and its physical offset.
          near_from, log_end: physical offsets between which the records must be.
          size_max: bytes.

        Returns: None: not for me.
        """

    def wake_pulls(
        self, rules: tuple[Any, ...], keys: list[tuple[str, int]], log_end: int, /
    ) -> tuple[
        list[tuple[Any, bytes, int]],
        list[tuple[str, int]],
        int,
        list[tuple[str, int, int]],
        BaseException | None,
        int,
    ]:
        """Answer held pulls that are alone in their queues and want all messages.

        Pure: `PullRequestHoldService.notify_messages` and `PullMessageProcessor`.

        Args:
          rules: see `pull_wakes.WakeRules`.
          keys: of queues with new messages.
          log_end: physical offset.

        Returns: the connections with their answers and the number of them; the keys of queues that
          are not for me, in their order; the bytes of the answered records; for each answer the
          pull's topic@group, and the number and the bytes of its records; the first error, None if
          there was none; and the number of errors. The queue where one happened, and those after
          it, are not for me.
        """
