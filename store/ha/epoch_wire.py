"""The wire protocol of replication in controller mode, without I/O: see docs/ha.md.

Java counterparts: ha/autoswitch/AutoSwitchHAConnection.java and AutoSwitchHAClient.java of 5.5.0,
with the same headers. A slave sends a handshake, then reports. A master answers the handshake with
the epochs of its log, and sends frames after the first report.

An extension between two trocket brokers: a slave sends `EXTENDED` for a flag that is not set, which
Apache's master takes for 0, as only 1 means something to it. A trocket master answers with frames
of a negative state, and the slave may ask for checksums, as in `wire.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from ...remoting.errors import RemoteProtocolError
from ..config import HA_BATCH_SIZE_MAX
from .epochs import EpochError, Epochs
from .wire import ASK, CHECKSUM, READY, REFUSED, TLS_FIRST_BYTES, Question

HANDSHAKE: Final = 1
TRANSFER: Final = 2
"""States that begin a message. The others of HAConnectionState (0, 3 and 4) are never sent."""

EXTENDED: Final = 2
"""A flag of the handshake: not set, and the slave can compare logs."""

EPOCHS_MAX: Final = 1000
"""Epochs in one list: the buffer of Apache's master has room for as many."""

_HANDSHAKE: Final = struct.Struct(">ihhq")
_REPORT: Final = struct.Struct(">iq")
_QUESTION: Final = struct.Struct(">iqq")
_EPOCH_LIST: Final = struct.Struct(">iiqi")
_EPOCH: Final = struct.Struct(">iq")
_FRAME: Final = struct.Struct(">iiqiqq")
_STATE: Final = struct.Struct(">i")

_WORD_SIZES = {HANDSHAKE: _HANDSHAKE.size, TRANSFER: _REPORT.size, ASK: _QUESTION.size}
_ANSWERS = (READY, CHECKSUM, REFUSED)


class Handshake(NamedTuple):
    """The first message of a slave.

    Attributes:
      controller_id: its permanent number in the set, from 1 on.
      sync_from_last_file: an empty log begins with the master's newest file.
      is_async_learner: it never joins the in-sync set.
      can_ask: it supports the extension.
    """

    controller_id: int
    sync_from_last_file: bool = False
    is_async_learner: bool = False
    can_ask: bool = False


EpochWord: TypeAlias = int | Handshake | Question
"""A message of a slave; an int is a report: the physical offset up to which it has the log, >= 0.
"""


class EpochList(NamedTuple):
    """A master's answer to a handshake.

    Attributes:
      log_end: physical offset of the end of its log; no epoch begins after it.
      epochs: of its log.
    """

    log_end: int
    epochs: Epochs


class EpochFrame(NamedTuple):
    """A frame of a master, or a part of one.

    Attributes:
      offset: physical offset of the body; -1, with an empty body: the master has nothing yet. In an
        answer, its value.
      kind: 0, or the kind of answer: `READY`, `CHECKSUM`, `REFUSED`.
      body: bytes of the log, a view of the fed bytes; empty: a heartbeat, or an answer.
      epoch: number of an epoch, that of the body's bytes from `epoch_start` on; in `READY`, that of
        the master.
      epoch_start: physical offset at which it begins. At most the end of the frame: Apache's master
        names the next epoch in the last frame of the one before.
      confirm_offset: physical offset up to which the log is confirmed; -1: unknown.
    """

    offset: int
    kind: int
    body: bytes | memoryview
    epoch: int = 0
    epoch_start: int = 0
    confirm_offset: int = 0


class EpochFrameDecoder:
    """Decodes the messages of a master from pieces of any size.

    A body that comes in pieces becomes several frames, as in `wire.FrameDecoder`.

    Args:
      body_size_max: bytes of a body; more is an error.
      with_answers: whether frames of a negative state may come.
    """

    def __init__(self, *, body_size_max: int = HA_BATCH_SIZE_MAX, with_answers: bool) -> None:
        self._body_size_max = body_size_max
        self._with_answers = with_answers
        self._head = b""
        self._has_list = False
        self._offset = 0
        self._missing = 0
        self._epoch = (0, 0, 0)  # its number and start, and the confirm offset

    @property
    def partial_size(self) -> int:
        """Received bytes of an incomplete header or list of epochs."""
        return len(self._head)

    def feed(self, data: bytes | bytearray) -> list[EpochFrame | EpochList]:
        """The messages in these bytes.

        Raises:
          RemoteProtocolError: an invalid header; messages before it are lost, too.
        """
        # The last read may have ended within a header.
        view = memoryview(self._head + data if self._head else data)
        found: list[EpochFrame | EpochList] = []
        position = self._take_body(found, view, 0)
        while True:
            size = self._begin(found, view, position)
            if size == 0:
                break
            position = self._take_body(found, view, position + size)
        self._head = bytes(view[position:])
        return found

    def _begin(self, found: list[EpochFrame | EpochList], view: memoryview, position: int) -> int:
        """Decode a header, and a list of epochs; returns its size, 0: it is incomplete."""
        room = len(view) - position
        if room < _STATE.size:
            return 0
        (state,) = _STATE.unpack_from(view, position)
        if state != TRANSFER or not self._has_list:
            self._check_state(state)
        header = _FRAME if state == TRANSFER else _EPOCH_LIST
        if room < header.size:
            return 0
        if state == TRANSFER:
            self._begin_frame(found, *_FRAME.unpack_from(view, position)[1:])
            return _FRAME.size
        _, body_size, value, epoch = _EPOCH_LIST.unpack_from(view, position)
        if state != HANDSHAKE:
            if body_size or (value < 0 and state != CHECKSUM):
                raise RemoteProtocolError(f"an answer of {body_size} bytes and value {value}")
            found.append(EpochFrame(value, state, b"", epoch))
            return _EPOCH_LIST.size
        if body_size % _EPOCH.size or not 0 <= body_size <= EPOCHS_MAX * _EPOCH.size:
            raise RemoteProtocolError(
                f"a list of epochs of {body_size} bytes, at most {EPOCHS_MAX} epochs of "
                f"{_EPOCH.size} bytes"
            )
        size: int = _EPOCH_LIST.size + body_size
        if room < size:
            return 0
        body = view[position + _EPOCH_LIST.size : position + size]
        found.append(EpochList(value, _checked_epochs(_EPOCH.iter_unpack(body), value)))
        self._has_list = True
        return size

    def _check_state(self, state: int) -> None:
        if state in _ANSWERS and self._with_answers:
            return
        if state != (TRANSFER if self._has_list else HANDSHAKE):
            place = "after the list of epochs" if self._has_list else "at the begin"
            raise RemoteProtocolError(
                f"a message of state {state} {place}; is enableControllerMode=true at the master?"
            )

    def _begin_frame(
        self,
        found: list[EpochFrame | EpochList],
        size: int,
        offset: int,
        epoch: int,
        epoch_start: int,
        confirm_offset: int,
    ) -> None:
        if not 0 <= size <= self._body_size_max:
            raise RemoteProtocolError(f"a frame of {size} bytes, at most {self._body_size_max}")
        if offset < (0 if size else -1) or confirm_offset < -1:
            raise RemoteProtocolError(
                f"a frame at physical offset {offset}, confirmed up to {confirm_offset}"
            )
        if epoch < 0 or not 0 <= epoch_start <= max(offset, 0) + size:
            raise RemoteProtocolError(
                f"a frame of {size} bytes at offset {offset} in epoch {epoch}, which begins at "
                f"offset {epoch_start}"
            )
        if size:
            self._offset, self._missing = offset, size
            self._epoch = (epoch, epoch_start, confirm_offset)
        else:
            found.append(EpochFrame(offset, 0, b"", epoch, epoch_start, confirm_offset))

    def _take_body(
        self, found: list[EpochFrame | EpochList], view: memoryview, position: int
    ) -> int:
        body = view[position : position + self._missing]
        if body:
            found.append(EpochFrame(self._offset, 0, body, *self._epoch))
            self._offset += len(body)
            self._missing -= len(body)
        return position + len(body)


def _checked_epochs(entries: Iterator[tuple[int, int]], log_end: int) -> Epochs:
    try:
        epochs = Epochs(entries)
    except EpochError as error:
        raise RemoteProtocolError(f"a list of epochs that is not in order: {error}") from error
    if log_end < 0:
        raise RemoteProtocolError(f"a list of epochs of a log that ends at {log_end}")
    if epochs and epochs[-1].start > log_end:
        raise RemoteProtocolError(
            f"epoch {epochs[-1].number} begins at offset {epochs[-1].start}, and the log ends at "
            f"{log_end}"
        )
    return epochs


class EpochWordDecoder:
    """Decodes the messages of a slave from pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._is_first = True
        self._may_ask = False

    @property
    def partial_size(self) -> int:
        """Received bytes of an incomplete message."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray) -> Iterator[EpochWord]:
        """The messages that these bytes complete, in order.

        Raises:
          RemoteProtocolError: an invalid message.
        """
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _STATE.size:
            (state,) = _STATE.unpack_from(buffer)
            self._check(state)
            size = _WORD_SIZES[state]
            if len(buffer) < size:
                return
            message = bytes(buffer[:size])
            del buffer[:size]
            yield self._word(state, message)

    def _check(self, state: int) -> None:
        if not self._is_first:
            if state == TRANSFER or (state == ASK and self._may_ask):
                return
            raise RemoteProtocolError(f"a message of state {state} after the handshake")
        if state >> 16 == TLS_FIRST_BYTES:
            raise RemoteProtocolError("it speaks TLS, and haTlsEnable is false here")
        if state != HANDSHAKE:
            raise RemoteProtocolError(
                f"it begins with state {state} and not with a handshake; is "
                "enableControllerMode=true there?"
            )

    def _word(self, state: int, message: bytes) -> EpochWord:
        if state == ASK:
            return Question(*_QUESTION.unpack(message)[1:])
        if state == TRANSFER:
            (offset,) = _REPORT.unpack(message)[1:]
            if offset < 0:
                raise RemoteProtocolError(f"a report of {offset}")
            return int(offset)
        _, from_last, learner, controller_id = _HANDSHAKE.unpack(message)
        self._is_first = False
        self._may_ask = EXTENDED in (from_last, learner)
        return Handshake(controller_id, from_last == 1, learner == 1, self._may_ask)


def encode_handshake(handshake: Handshake) -> bytes:
    """A handshake. With both flags set the extension cannot be offered."""
    unset = EXTENDED if handshake.can_ask else 0
    flags = (handshake.sync_from_last_file, handshake.is_async_learner)
    numbers = [1 if flag else unset for flag in flags]
    return _HANDSHAKE.pack(HANDSHAKE, *numbers, handshake.controller_id)


def encode_epoch_report(offset: int) -> bytes:
    """A report: the slave has the log up to this physical offset."""
    return _REPORT.pack(TRANSFER, offset)


def encode_question(question: Question) -> bytes:
    """A question of a slave to a trocket master."""
    return _QUESTION.pack(ASK, *question)


def encode_epoch_list(log_end: int, epochs: Epochs) -> bytes:
    """A master's answer to a handshake: the newest `EPOCHS_MAX` epochs."""
    newest = epochs.newest(EPOCHS_MAX)
    head = _EPOCH_LIST.pack(HANDSHAKE, len(newest) * _EPOCH.size, log_end, epochs.last_number)
    return head + b"".join(_EPOCH.pack(*entry) for entry in newest)


def encode_answer(value: int, kind: int, epoch: int = 0) -> bytes:
    """An answer of a trocket master."""
    return _EPOCH_LIST.pack(kind, 0, value, epoch)


def encode_epoch_header(
    offset: int, size: int, epoch: int, epoch_start: int, confirm_offset: int
) -> bytes:
    """The header of a frame; the body follows unchanged."""
    return _FRAME.pack(TRANSFER, size, offset, epoch, epoch_start, confirm_offset)
