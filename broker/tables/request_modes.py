"""MessageRequestModeManager: how each group gets the messages of a topic, in
`messageRequestMode.json`.

An administrator sets it (401). Without an entry, defaultMessageRequestMode counts. An entry ends
with its topic or group; RocketMQ keeps it for ever.

Java counterpart: broker/loadbalance/MessageRequestModeManager.java of 5.5.0. Pure, but for the
`save` it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ...common.steps import Steps, at_once, json_members, with_member
from ...disk.json_config import parse
from ...disk.state_file import Save, StateFile
from ...remoting import fastjson
from ...remoting.bodies import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
    out_of_range,
)
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.response_codes import ResponseCode
from .config_text import REQUEST_MODES, member, pretty, written, written_in_steps

logger = logging.getLogger(__name__)

ENTRIES_MAX: Final = 10_000
"""Pairs of topic and group with a mode. Each change writes the whole table, 130 bytes a pair.
RocketMQ has no bound."""

Mode = SetMessageRequestModeRequestBody
"""An entry; never changed in place, always replaced."""


class MessageRequestModeManager:
    """The table of modes. Not thread-safe: used from the broker's one trio run.

    Args:
      save_later: schedules a write, see `StateFile`.
    """

    def __init__(
        self, *, save: Save, save_later: Callable[[StateFile], None] | None = None
    ) -> None:
        self.file = StateFile(
            REQUEST_MODES, "modes of message requests", save, self._encode_in_steps, save_later
        )
        self._topics: dict[str, dict[str, Mode]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, topic: str, group: str) -> Mode | None:
        """The mode that is set for a group and a topic; None: none."""
        return self._topics.get(topic, {}).get(group)

    def set(self, mode: Mode) -> None:
        """Set the mode of a group for a topic; both are in the entry.

        Raises: RequestRefused: SYSTEM_ERROR if it is new, and there are ENTRIES_MAX.
        """
        topic, group = mode.topic, mode.consumer_group
        known = self.find(topic, group)
        if known is None:
            if self._count >= ENTRIES_MAX:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"no more than {ENTRIES_MAX} pairs of topic and group can have a mode: delete "
                    "topics or groups that are not used any more",
                )
            self._count += 1
        self._topics.setdefault(topic, {})[group] = mode
        if mode != known:
            logger.info(
                "group %(group)s gets topic %(topic)s by %(mode)s, popShareQueueNum %(shared)d",
                {
                    "group": group,
                    "topic": topic,
                    "mode": mode.mode,
                    "shared": mode.pop_share_queue_num,
                },
            )
            self.file.changed_by_client()

    def topic_deleted(self, topic: str) -> None:
        """Drop the entries of a topic."""
        groups = self._topics.pop(topic, {})
        if groups:
            self._count -= len(groups)
            self.file.changed()

    def group_deleted(self, group: str) -> None:
        """Drop the entries of a group."""
        topics = [topic for topic, groups in self._topics.items() if group in groups]
        for topic in topics:
            del self._topics[topic][group]
            if not self._topics[topic]:
                del self._topics[topic]
        self._count -= len(topics)
        if topics:
            self.file.changed()

    def take_over(self, master: MessageRequestModeSerializeWrapper) -> None:
        """Replace the table by a master's; a changed table is saved."""
        before = self._topics
        self._replace(master)
        if self._topics != before:
            self.file.changed()

    def encode(self) -> bytes:
        """The text of `messageRequestMode.json`."""
        return at_once(self._encode_in_steps())

    def to_body(self) -> Steps[bytes]:
        """Steps to the answer to GET_ALL_MESSAGE_REQUEST_MODE; the content is that of this call."""
        topics = {topic: dict(groups) for topic, groups in self._topics.items()}
        body = MessageRequestModeSerializeWrapper().to_body()
        modes = yield from json_members(topics, fastjson.dumps)
        return with_member(body, b'"messageRequestModeMap":{}', modes)

    def _encode_in_steps(self) -> Steps[bytes]:
        """Steps to the text of the file; the content is that of this call."""
        copies = {topic: dict(groups) for topic, groups in self._topics.items()}
        topics = {}
        for topic, groups in copies.items():
            topics[topic] = yield from written_in_steps(groups, _member, depth=2)
        table = yield from written_in_steps(topics, member)
        return pretty({"messageRequestModeMap": table})

    def decode(self, text: bytes) -> int:
        """Replace the table by the content of `messageRequestMode.json`.

        Args:
          text: the file's text, as RocketMQ wrote it.
        Returns: the number of entries.
        Raises: ValueError: the text is not such a table; nothing is changed then.
        """
        try:
            table = MessageRequestModeSerializeWrapper.from_tree(parse(text))
        except RemoteProtocolError as error:
            raise ValueError(f"not a table of modes of message requests: {error}") from error
        fault = out_of_range(table)
        if fault is not None:
            raise ValueError(f"not a table of modes of message requests: {fault}")
        self._replace(table)
        return self._count

    def _replace(self, table: MessageRequestModeSerializeWrapper) -> None:
        """Replace the table; the names of an entry are those under which it is found."""
        self._topics = {
            topic: {
                group: Mode(
                    topic=topic,
                    consumer_group=group,
                    mode=mode.mode,
                    pop_share_queue_num=mode.pop_share_queue_num,
                )
                for group, mode in groups.items()
            }
            for topic, groups in table.message_request_mode_map.items()
            if groups
        }
        self._count = sum(map(len, self._topics.values()))


def _member(group: str, mode: Mode) -> bytes:
    return member(group, written(mode, depth=3))
