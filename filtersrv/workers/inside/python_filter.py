"""Execution of a filter written in Python: it answers LOAD and BATCH."""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType

from . import frames

TYPE_CHECKING = False  # see frames
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    Match = Callable[["FilterMessage"], object]

READ_BYTES = 65_536
"""Number of bytes read at once: the capacity of a pipe."""


class FilterMessage:
    """The message that is passed to a filter.

    Attributes:
      queue_id: number of the queue.
      tags: the tag; None: no tag.
      keys: the keys, separated by spaces; None: no keys.
      properties: all properties, by name.
      body: the body, decompressed.
      born_timestamp_ms: time of sending, in milliseconds since 1970.
      store_timestamp_ms: time of storing, in milliseconds since 1970.
      reconsume_times: number of times that consumers sent it back.
      flag: int32 that the producer set.
      sys_flag: RocketMQ's flag bits.
      message_id: the id that the producer assigned, otherwise the broker's.
    """

    __slots__ = (
        "_offset_id",
        "_properties",
        "_properties_bytes",
        "body",
        "born_timestamp_ms",
        "flag",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "store_timestamp_ms",
        "sys_flag",
        "topic",
    )

    def __init__(self, content: bytes) -> None:
        (
            self.queue_id,
            self.queue_offset,
            physical_offset,
            self.flag,
            self.sys_flag,
            self.born_timestamp_ms,
            self.store_timestamp_ms,
            self.reconsume_times,
            _prepared_transaction_offset,
            _store_size,
            _body_crc,
            born_host_size,
            store_host_size,
            topic_size,
            properties_size,
        ) = frames.MESSAGE_HEAD.unpack_from(content)
        store_host_at = frames.MESSAGE_HEAD.size + born_host_size
        topic_at = store_host_at + store_host_size
        properties_at = topic_at + topic_size
        body_at = properties_at + properties_size
        self._offset_id = (content[store_host_at:topic_at], physical_offset)
        self.topic = str(content[topic_at:properties_at], "utf-8", "replace")
        self._properties_bytes = content[properties_at:body_at]
        self._properties: dict[str, str] | None = None
        self.body = content[body_at:]

    @property
    def properties(self) -> dict[str, str]:
        """All properties, by name; parsed at the first access."""
        if self._properties is None:
            self._properties = parse_properties(self._properties_bytes)
        return self._properties

    @property
    def tags(self) -> str | None:
        """The tag."""
        return self.properties.get("TAGS")

    @property
    def keys(self) -> str | None:
        """The keys, separated by spaces."""
        return self.properties.get("KEYS")

    @property
    def message_id(self) -> str:
        """The id that consumers see."""
        store_host, physical_offset = self._offset_id
        offset_id = f"{store_host.hex().upper()}{physical_offset:016X}"
        return self.properties.get("UNIQ_KEY", offset_id)


def parse_properties(raw: bytes) -> dict[str, str]:
    """Decode properties, as `common.message_properties.properties_from_bytes`, without imports."""
    properties: dict[str, str] = {}
    for item in str(raw, "utf-8", "replace").split("\x02"):
        name, _, value = item.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


class _Loader(SourceFileLoader):
    """Loads a module from source that is not in a file."""

    def __init__(self, name: str, source: bytes) -> None:
        super().__init__(name, f"<{name}>")
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._source, self.path)


def load(class_name: str, source: bytes) -> Match:
    """Load the filter that a source defines.

    Args:
      class_name: full name; its last part is the name of a class with a method `match(message)`.
      source: source code, which can also define a function `match(message)` instead of a class.

    Returns: the method or function.
    Raises: BaseException: any exception of the source, such as SyntaxError.
    """
    name = class_name.rpartition(".")[2]
    loader = _Loader(name, source)
    module = ModuleType(name)
    sys.modules[name] = module
    loader.exec_module(module)
    filter_class = getattr(module, name, None)
    match: object = getattr(module if filter_class is None else filter_class(), "match", None)
    if not callable(match):
        raise TypeError(
            f"the source defines neither {name}.match(self, message) nor match(message)"
        )
    return match


def serve(requests_fd: int, answers_fd: int) -> None:
    """Answer requests until the pipe is closed."""
    match: Match | None = None
    with open(requests_fd, "rb", READ_BYTES, closefd=False) as requests:
        while True:
            kind, number, content = _read_frame(requests)
            if kind == frames.LOAD:
                try:
                    match = load(*frames.unpack_named(content))
                    answer = frames.frame(frames.DONE, number)
                except BaseException as error:  # noqa: BLE001 - SystemExit is a failure too
                    answer = frames.text_frame(frames.REFUSED, number, describe(error))
            else:
                (count,) = frames.COUNT.unpack_from(content)
                answer = _decide(match, requests, number, count)
            while answer:
                answer = answer[os.write(answers_fd, answer) :]


def _decide(match: Match | None, requests: BinaryIO, number: int, count: int) -> bytes:
    """Call the filter with each message; all messages are read, even after a failure."""
    decisions: list[bool] = []
    failure = "" if match is not None else "no filter is loaded"
    for _ in range(count):
        _, _, content = _read_frame(requests)
        if not failure:
            try:
                decisions.append(bool(match(FilterMessage(content))))  # type: ignore[misc]
            except BaseException as error:  # noqa: BLE001 - SystemExit is a failure too
                failure = describe(error)
    if failure:
        return frames.text_frame(frames.FAILED, number, failure)
    return frames.frame(frames.BITS, number, frames.pack_bits(decisions))


def _read_frame(requests: BinaryIO) -> tuple[int, int, bytes]:
    head = requests.read(frames.HEAD.size)
    if len(head) < frames.HEAD.size:
        os._exit(0)  # the filter server has ended; do not wait for threads of the filter
    kind, number, size = frames.HEAD.unpack(head)
    return kind, number, requests.read(size)


def describe(error: BaseException) -> str:
    """The type and text of an exception, and the line of the source that raised it."""
    line = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith("<"):
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException as another:  # noqa: BLE001 - its __str__ was uploaded too
        text = f"{type(error).__name__}, whose str() raises {type(another).__name__}"
    return f"{text} (line {line})" if line else text
