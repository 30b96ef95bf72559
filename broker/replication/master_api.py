"""MasterApi: a slave's requests to its master for tables and offsets.

The master may be Apache's, 4.9 or 5.x.

Java counterpart: broker/out/BrokerOuterAPI.java getAllTopicConfig, getAllConsumerOffset,
getAllDelayOffset, getAllSubscriptionGroupConfig, getAllMessageRequestMode, getTimerCheckPoint of
5.5.0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from ...remoting.bodies import (
    DataVersion,
    HARuntimeInfo,
    KVTable,
    MessageRequestModeSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from ...remoting.client import RemotingClient
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError, RemotingConnectError, RequestRefused
from ...remoting.headers import (
    GetAllConsumerOffsetRequestHeader,
    GetAllConsumerOffsetResponseHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    decode,
    encode_header,
)
from ...remoting.hosts import join_address
from ...remoting.opener import split_address
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..settings.listening import VIP_PORT_STEP
from ..tables.offset_pages import OFFSETS_OF_A_PAGE, join_pages

TIMEOUT_S: Final = 3.0
"""For one answer. Source: BrokerOuterAPI."""

PAGE_SIZE: Final = 2000
"""Topics or groups per request. RocketMQ: splitMetadataSize."""

PAGES_MAX: Final = 200
"""Requests for one table: four times the pages of the largest table, because reading starts again
whenever the table changes meanwhile."""

_TableT = TypeVar("_TableT", TopicConfigSerializeWrapper, SubscriptionGroupWrapper)


class MasterApi:
    """The requests to one master.

    All methods raise RemotingError when the master cannot be reached or its answer cannot be read,
    and RequestRefused when it refuses.

    Args:
      client: running.
      address: `host:port` of the master.
    """

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address

    async def topics(self) -> TopicConfigSerializeWrapper:
        """All topics, requested on the VIP port as Apache's slaves do, or else on the main port."""

        async def ask(begin: int, version: str) -> tuple[TopicConfigSerializeWrapper, int | None]:
            header = GetAllTopicConfigRequestHeader(
                topic_seq=begin, data_version=version, max_topic_num=PAGE_SIZE
            )
            code = RequestCode.GET_ALL_TOPIC_CONFIG
            answer = await self._ask_vip(RemotingCommand(code, encode_header(header)))
            total = decode(GetAllTopicConfigResponseHeader, answer.ext_fields).total_topic_num
            return TopicConfigSerializeWrapper.from_body(answer.body), total

        return await _all_pages(ask, lambda page: page.topic_config_table)

    async def groups(self) -> SubscriptionGroupWrapper:
        async def ask(begin: int, version: str) -> tuple[SubscriptionGroupWrapper, int | None]:
            header = GetAllSubscriptionGroupRequestHeader(
                group_seq=begin, data_version=version, max_group_num=PAGE_SIZE
            )
            code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            answer = await self.ask(RemotingCommand(code, encode_header(header)))
            total = decode(GetAllSubscriptionGroupResponseHeader, answer.ext_fields).total_group_num
            return SubscriptionGroupWrapper.from_body(answer.body), total

        return await _all_pages(ask, lambda page: page.subscription_group_table)

    async def consumer_offsets(self) -> bytes:
        """The text of its consumerOffset.json, or the part that a slave needs.

        Raises: ValueError: a page is not a table of offsets.
        """
        pages: list[bytes] = []
        after = ""
        for _ in range(PAGES_MAX):
            header = GetAllConsumerOffsetRequestHeader(
                after_topic_group=after, max_offset_num=OFFSETS_OF_A_PAGE
            )
            code = RequestCode.GET_ALL_CONSUMER_OFFSET
            answer = await self.ask(RemotingCommand(code, encode_header(header)))
            pages.append(answer.body)
            last = decode(GetAllConsumerOffsetResponseHeader, answer.ext_fields).last_topic_group
            if last is None:
                return answer.body if len(pages) == 1 else join_pages(pages)
            after = last
        raise RemoteProtocolError(f"the table of offsets is not complete after {PAGES_MAX} pages")

    async def request_modes(self) -> MessageRequestModeSerializeWrapper | None:
        """How groups get the messages of topics; None: the master is 4.9, and has no such table."""
        code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
        try:
            answer = await self.ask(RemotingCommand(code))
        except RequestRefused as refusal:
            if refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return None
        return MessageRequestModeSerializeWrapper.from_body(answer.body)

    async def delay_offsets(self) -> bytes:
        """The text of its delayOffset.json."""
        return (await self.ask(RemotingCommand(RequestCode.GET_ALL_DELAY_OFFSET))).body

    async def timer_checkpoint(self) -> bytes | None:
        """Its timercheck page, or the first part of that; None: it has no timers."""
        try:
            return (await self.ask(RemotingCommand(RequestCode.GET_TIMER_CHECK_POINT))).body
        except RequestRefused:  # timers are off, or the master is 4.9
            return None

    async def log_end(self) -> int:
        """The physical offset of its log's end."""
        try:
            answer = await self.ask(RemotingCommand(RequestCode.GET_BROKER_HA_STATUS))
        except RequestRefused as refusal:  # 4.9 does not know it
            if refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        else:
            status = HARuntimeInfo.from_body(answer.body)
            if not status.master:
                raise RemoteProtocolError(f"{self._address} is not a master")
            return status.master_commit_log_max_offset
        answer = await self.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
        text = KVTable.from_body(answer.body).table.get("commitLogMaxOffset", "")
        if not text.isdecimal():
            raise RemoteProtocolError(f"commitLogMaxOffset is {text[:40]!r}, not a number")
        return int(text)

    async def ask(self, command: RemotingCommand, address: str | None = None) -> RemotingCommand:
        """Send a request to the master; its answer is a success."""
        answer = await self._client.call(address or self._address, command, TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            name = RequestCode(command.code).name
            raise RequestRefused(answer.code, f"the master refuses {name}: {answer.remark}")
        return answer

    async def _ask_vip(self, command: RemotingCommand) -> RemotingCommand:
        host, port = split_address(self._address)
        if port <= VIP_PORT_STEP:
            return await self.ask(command)
        try:
            return await self.ask(command, join_address(host, port - VIP_PORT_STEP))
        except RemotingConnectError:
            return await self.ask(command)


async def _all_pages(
    ask: Callable[[int, str], Awaitable[tuple[_TableT, int | None]]],
    entries_of: Callable[[_TableT], Mapping[str, object]],
) -> _TableT:
    """Read a table that may come in pages.

    Args:
      ask: requests the page that begins at an index; its second argument is the version of the
        pages so far as JSON, or "". It returns a page and the total number of entries; None: the
        page is the whole table. If the version has changed, it returns the first page.
      entries_of: returns the entries of a page.
    """
    whole, total = await ask(0, "")
    for _ in range(PAGES_MAX):
        seen = len(entries_of(whole))
        if total is None or seen >= total:
            return whole
        page, total = await ask(seen, _json(whole.data_version))
        if page.data_version != whole.data_version:
            whole = page  # the table has changed, and this is the first page of the new version
        elif not entries_of(page):
            return whole
        else:
            _add(whole, page)
    raise RemoteProtocolError(f"the table is not complete after {PAGES_MAX} pages")


def _add(whole: _TableT, page: _TableT) -> None:
    if isinstance(whole, TopicConfigSerializeWrapper):
        assert isinstance(page, TopicConfigSerializeWrapper)
        whole.topic_config_table |= page.topic_config_table
        mappings = page.topic_queue_mapping_detail_map
        if mappings is not None:
            whole.topic_queue_mapping_detail_map = {
                **(whole.topic_queue_mapping_detail_map or {}), **mappings
            }  # fmt: skip
    else:
        assert isinstance(page, SubscriptionGroupWrapper)
        whole.subscription_group_table |= page.subscription_group_table
        whole.forbidden_table |= page.forbidden_table


def _json(version: DataVersion) -> str:
    return version.to_body().decode("ascii")
