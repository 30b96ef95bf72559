"""Requests of a slave to a master of any version, and the use of the answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from trocket.broker.replication.master_api import PAGES_MAX, TIMEOUT_S, MasterApi
from trocket.remoting.bodies import DataVersion
from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import (
    RemoteProtocolError,
    RemotingConnectError,
    RemotingTimeoutError,
    RequestRefused,
)
from trocket.remoting.server import RemotingServer
from trocket.remoting.turn import Turn

HOST, PORT = "192.0.2.1", 10911
TOPICS, OFFSETS, DELAY_OFFSETS, GROUPS, TIMER_CHECKPOINT = 21, 43, 45, 201, 60
HA_STATUS, RUNTIME_INFO = 907, 28
VERSION = b'{"counter":2,"stateVersion":0,"timestamp":5}'

Answer = Callable[[RemotingCommand], RemotingCommand | None]


class Master:
    """A stand-in that answers as the test says.

    Attributes:
      answers: by request code; another code is refused as not supported.
      asked: port, code and ext fields of each request.
      closed: ports without a listener.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.answers: dict[int, bytes | Answer] = {}
        self.asked: list[tuple[int, int, dict[str, str]]] = []
        self.closed: set[int] = set()
        self._nursery = nursery

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if port in self.closed:
            raise ConnectionRefusedError("nothing listens")
        near, far = trio.testing.memory_stream_pair()

        def process(request, channel):
            self.asked.append((port, request.code, dict(request.ext_fields)))
            answer = self.answers[request.code]
            return request.answer(body=answer) if isinstance(answer, bytes) else answer(request)

        processors = dict.fromkeys(self.answers, process)
        self._nursery.start_soon(RemotingServer(processors, turn=Turn()).serve_stream, near)
        return far


@asynccontextmanager
async def asking(answers: dict[int, bytes | Answer]) -> AsyncIterator[tuple[MasterApi, Master]]:
    async with trio.open_nursery() as nursery:
        master = Master(nursery)
        master.answers = answers
        client = RemotingClient(open_stream=master.connect)
        await nursery.start(client.run)
        yield MasterApi(client, f"{HOST}:{PORT}"), master
        nursery.cancel_scope.cancel()


def table(name: str, *topics: str, version: bytes = VERSION) -> bytes:
    member = b"topicName" if name == "topicConfigTable" else b"groupName"
    entries = b",".join(b'"%b":{"%b":"%b"}' % (t.encode(), member, t.encode()) for t in topics)
    return b'{"dataVersion":%b,"%b":{%b}}' % (version, name.encode(), entries)


async def test_a_master_of_4_9_answers_everything_at_once(autojump_clock):
    answers = {
        TOPICS: table("topicConfigTable", "A", "B"),
        GROUPS: table("subscriptionGroupTable", "G"),
        OFFSETS: b'{"offsetTable":{"A@G":{0:11}}}',
        DELAY_OFFSETS: b'{"offsetTable":{}}',
        RUNTIME_INFO: b'{"table":{"commitLogMaxOffset":"4711"}}',
    }
    async with asking(answers) as (api, master):
        topics = await api.topics()
        assert topics.topic_config_table.keys() == {"A", "B"}
        assert topics.data_version == DataVersion(timestamp=5, counter=2)
        assert (await api.groups()).subscription_group_table.keys() == {"G"}
        assert await api.consumer_offsets() == answers[OFFSETS]
        assert await api.delay_offsets() == answers[DELAY_OFFSETS]
        assert await api.timer_checkpoint() is None
        assert await api.log_end() == 4711
        paged = {"topicSeq": "0", "dataVersion": "", "maxTopicNum": "2000"}
        assert master.asked[0] == (PORT - 2, TOPICS, paged)
        groups = {"groupSeq": "0", "dataVersion": "", "maxGroupNum": "2000"}
        assert master.asked[1] == (PORT, GROUPS, groups)
        assert {port for port, _, _ in master.asked[1:]} == {PORT}


async def test_where_there_is_no_vip_port_topics_are_asked_for_on_the_other(autojump_clock):
    async with asking({TOPICS: table("topicConfigTable", "A")}) as (api, master):
        master.closed = {PORT - 2}
        assert (await api.topics()).topic_config_table.keys() == {"A"}
        assert [port for port, _, _ in master.asked] == [PORT]


def paged(master_tables: list[bytes], total: int) -> Answer:
    """Answers one page after the other."""

    def answer(request: RemotingCommand) -> RemotingCommand:
        return request.answer(ext_fields={"totalTopicNum": str(total)}, body=master_tables.pop(0))

    return answer


async def test_pages_are_put_together(autojump_clock):
    pages = [table("topicConfigTable", *names) for names in ("AB", "CD", "E")]
    async with asking({TOPICS: paged(pages, 5)}) as (api, master):
        assert list((await api.topics()).topic_config_table) == list("ABCDE")
        fields = [each[2] for each in master.asked]
        assert [each["topicSeq"] for each in fields] == ["0", "2", "4"]
        assert fields[0]["dataVersion"] == ""
        assert {json.loads(each["dataVersion"])["counter"] for each in fields[1:]} == {2}


async def test_a_table_that_changes_meanwhile_is_begun_anew(autojump_clock):
    newer = b'{"counter":3,"stateVersion":0,"timestamp":6}'
    pages = [
        table("topicConfigTable", "A", "B"),
        table("topicConfigTable", "A", "X", version=newer),
        table("topicConfigTable", "Y", version=newer),
    ]
    async with asking({TOPICS: paged(pages, 3)}) as (api, _):
        topics = await api.topics()
        assert list(topics.topic_config_table) == ["A", "X", "Y"]
        assert topics.data_version.counter == 3


async def test_an_empty_page_is_the_end(autojump_clock):
    pages = [table("topicConfigTable", "A"), table("topicConfigTable")]
    async with asking({TOPICS: paged(pages, 9)}) as (api, _):
        assert list((await api.topics()).topic_config_table) == ["A"]


@pytest.mark.slow
async def test_a_table_that_never_stands_still_is_given_up(autojump_clock):
    pages = [
        table("topicConfigTable", "A", version=b'{"counter":%d}' % number)
        for number in range(PAGES_MAX + 1)
    ]
    async with asking({TOPICS: paged(pages, 9)}) as (api, _):
        with pytest.raises(RemoteProtocolError, match="is not complete after 200 pages"):
            await api.topics()


async def test_the_end_of_the_log_is_that_of_907_where_there_is_one(autojump_clock):
    body = b'{"master":true,"masterCommitLogMaxOffset":99}'
    async with asking({HA_STATUS: body}) as (api, _):
        assert await api.log_end() == 99


@pytest.mark.parametrize(
    "answers",
    [
        {HA_STATUS: b'{"master":false}'},
        {RUNTIME_INFO: b'{"table":{}}'},
        {RUNTIME_INFO: b'{"table":{"commitLogMaxOffset":"-1"}}'},
        {RUNTIME_INFO: b"[]"},
        {TOPICS: b"[]", GROUPS: b"{"},
    ],
)
async def test_what_cannot_be_read_is_a_remote_protocol_error(answers, autojump_clock):
    async with asking(answers) as (api, _):
        asks = (api.topics, api.groups) if TOPICS in answers else (api.log_end,)
        for ask in asks:
            with pytest.raises(RemoteProtocolError):
                await ask()


async def test_a_refusal_names_the_request(autojump_clock):
    def refuse(request: RemotingCommand) -> RemotingCommand:
        return request.answer(1, "not today")

    codes = (TOPICS, GROUPS, OFFSETS, DELAY_OFFSETS, HA_STATUS, TIMER_CHECKPOINT)
    async with asking(dict.fromkeys(codes, refuse)) as (api, _):
        for ask, name in (
            (api.topics, "GET_ALL_TOPIC_CONFIG"),
            (api.groups, "GET_ALL_SUBSCRIPTIONGROUP_CONFIG"),
            (api.consumer_offsets, "GET_ALL_CONSUMER_OFFSET"),
            (api.delay_offsets, "GET_ALL_DELAY_OFFSET"),
            (api.log_end, "GET_BROKER_HA_STATUS"),
        ):
            with pytest.raises(RequestRefused, match=f"the master refuses {name}: not today"):
                await ask()
        assert await api.timer_checkpoint() is None  # timers are off there


async def test_a_silent_master_is_waited_for_three_seconds(autojump_clock):
    async with asking({OFFSETS: lambda request: None}) as (api, _):
        start_s = trio.current_time()
        with pytest.raises(RemotingTimeoutError):
            await api.consumer_offsets()
        assert trio.current_time() - start_s == pytest.approx(TIMEOUT_S)


async def test_a_master_that_is_away_is_a_connect_error(autojump_clock):
    async with asking({}) as (api, master):
        master.closed = {PORT, PORT - 2}
        with pytest.raises(RemotingConnectError):
            await api.topics()
