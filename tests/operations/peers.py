"""Servers that answer as a test says, and count what they are asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import NamedTuple

import trio

from trocket.remoting.acceptor import open_listener
from trocket.remoting.bodies import BrokerData, ClusterInfo
from trocket.remoting.channel import Channel, Processor
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.server import RemotingServer

Answering = Callable[[RemotingCommand], RemotingCommand | None]
"""Answers a request; None: never."""


class Peer:
    """A name server and a broker in one.

    Attributes:
      address: `host:port`, while it runs.
      brokers: what it tells as a name server: broker name to id to address.
      counts: requests, by code.
    """

    def __init__(self, answers: Mapping[RequestCode, Answering]) -> None:
        self.address = ""
        self.brokers: dict[str, dict[int, str]] = {}
        self.counts: Counter[int] = Counter()
        self._answers = {RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster, **answers}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Peer]:
        listener = open_listener("127.0.0.1", 0)
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        server = RemotingServer({code: self._processor(code) for code in self._answers})
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, [listener])
            yield self
            nursery.cancel_scope.cancel()

    def _processor(self, code: RequestCode) -> Processor:
        def process(request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
            self.counts[code] += 1
            return self._answers[code](request)

        return process

    def _cluster(self, request: RemotingCommand) -> RemotingCommand:
        table = {
            name: BrokerData(cluster="C", broker_name=name, broker_addrs=addresses)
            for name, addresses in self.brokers.items()
        }
        info = ClusterInfo(broker_addr_table=table, cluster_addr_table={"C": sorted(table)})
        return request.answer(0, body=info.to_body())


def silent(request: RemotingCommand) -> None:
    """No answer, as of a stopped process whose connections are open."""


def saying(tree: object) -> Answering:
    """The same answer, in JSON, to each request."""
    body = json.dumps(tree).encode()
    return lambda request: request.answer(0, body=body)


class Group(NamedTuple):
    """A group of a broker.

    Attributes:
      lag: messages that wait in queue 0 of the topic T.
      rate: messages pulled per second.
      members: client ids to the expressions of their subscriptions to T.
    """

    lag: int = 0
    rate: float = 0.0
    members: Mapping[str, str] = MappingProxyType({})


SETTINGS = b"brokerName=broker-a\nbrokerId=0\n"


def broker_answers(
    groups: Mapping[str, Group], topics: Iterable[str] = ()
) -> dict[RequestCode, Answering]:
    """A broker without trocket's own answers, as RocketMQ's."""

    def connected(request: RemotingCommand) -> RemotingCommand:
        members = groups[request.ext_fields["consumerGroup"]].members
        if not members:
            return request.answer(ResponseCode.CONSUMER_NOT_ONLINE, "not online")
        known = {"clientAddr": "/127.0.0.1:1", "language": "JAVA", "version": 515}
        tree = {"connectionSet": [{"clientId": each, **known} for each in members]}
        return request.answer(0, body=json.dumps(tree).encode())

    def running(request: RemotingCommand) -> RemotingCommand:
        members = groups[request.ext_fields["consumerGroup"]].members
        wanted = {"topic": "T", "subString": members[request.ext_fields["clientId"]]}
        return request.answer(0, body=json.dumps({"subscriptionSet": [wanted]}).encode())

    return {
        RequestCode.GET_BROKER_RUNTIME_INFO: saying({"table": {}}),
        RequestCode.GET_BROKER_CONFIG: lambda request: request.answer(0, body=SETTINGS),
        RequestCode.GET_ALL_TOPIC_CONFIG: saying(
            {"topicConfigTable": {name: {"topicName": name} for name in topics}}
        ),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: saying(
            {"subscriptionGroupTable": {name: {"groupName": name} for name in groups}}
        ),
        RequestCode.SEND_MESSAGE: lambda request: request.answer(
            ResponseCode.INVALID_PARAMETER, "no such queue"
        ),
        RequestCode.GET_BROKER_CONSUME_STATS: progress(groups),
        RequestCode.GET_CONSUME_STATS: lambda request: request.answer(
            0, body=_table(groups[request.ext_fields["consumerGroup"]].lag)
        ),
        RequestCode.GET_TOPIC_STATS_INFO: lambda request: request.answer(
            0, body=_ends(request.ext_fields["topic"])
        ),
        RequestCode.QUERY_CONSUME_TIME_SPAN: saying({"consumeTimeSpanSet": []}),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: connected,
        RequestCode.GET_CONSUMER_RUNNING_INFO: running,
    }


def _table(lag: int) -> bytes:
    queue = '{"topic":"T","brokerName":"broker-a","queueId":0}'
    wrapper = f'{{"brokerOffset":{lag},"consumerOffset":0,"pullOffset":0,"lastTimestamp":0}}'
    return f'{{"offsetTable":{{{queue}:{wrapper}}},"consumeTps":0.0}}'.encode()


def _ends(topic: str) -> bytes:
    queue = f'{{"topic":"{topic}","brokerName":"broker-a","queueId":0}}'
    offsets = '{"minOffset":0,"maxOffset":1,"lastUpdateTimestamp":0}'
    return f'{{"offsetTable":{{{queue}:{offsets}}}}}'.encode()


def progress(groups: Mapping[str, Group]) -> Answering:
    """The answer to 317."""
    parts = []
    for name, group in groups.items():
        stats = _table(group.lag).decode()
        stats = stats.replace('"consumeTps":0.0', f'"consumeTps":{group.rate}')
        parts.append(f'{{"{name}":[{stats}]}}')
    body = f'{{"consumeStatsList":[{",".join(parts)}],"totalDiff":0}}'.encode()
    return lambda request: request.answer(0, body=body)
