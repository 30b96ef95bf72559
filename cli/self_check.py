"""The self-check of `trocket up`: a client's requests over real sockets, which store nothing.

It does what a client does: asks the name server for the route, sends to the broker, and pulls. The
send names a queue that does not exist, so the broker reads and checks it and stores no message: the
user's store stays empty. The topic and the groups are those that RocketMQ reserves for self-tests.

That the data folder takes writes is proved before: a store that opens has written its `abort` file
and synced the folder, or fails the start. Room on the disk is checked too; a full disk is reported
instead of a send. Not proved is a write into the commit log: the first send creates its first file.

Source: RocketMQ TopicValidator.RMQ_SYS_SELF_TEST_TOPIC, MixAll.SELF_TEST_CONSUMER_GROUP.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import trio

from ..operations.send_probe import probe_fields
from ..remoting.client import RemotingClient
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemotingConnectError, RemotingError
from ..remoting.pull_sys_flag import SUBSCRIPTION
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from ..remoting.signature import Credentials
from ..remoting.tls_client import ClientTls

TOPIC = "BenchmarkTest"
CONSUMER_GROUP = "SELF_TEST_C_GROUP"

TIMEOUT_S = 5.0
"""Per call. RocketMQ's clients wait 3 s for a send; creating the first file on a slow disk takes
longer."""

PULL_ANSWERS: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
"""Answers to a pull that was served; the queue is usually empty."""

CONNECT_TIMEOUT_S = 1.0
"""For the advertised address, which may be unreachable from this machine."""


async def check(
    namesrv: str,
    broker: str,
    advertised: str,
    *,
    takes_sends: bool = True,
    tls: ClientTls | None = None,
    accounts: tuple[Credentials | None, Credentials | None] = (None, None),
) -> tuple[float, str]:
    """Ask for a route, send, and pull; no message is stored.

    Args:
      namesrv: `host:port` of the name server.
      broker: `host:port` at which the broker answers on this machine.
      advertised: `host:port` of the broker in the routes that clients get.
      takes_sends: false: only ask for the route.
      tls: of servers that only serve TLS; None: the requests are plain.
      accounts: with the name server and with the broker; None: requests are not signed.

    Returns: milliseconds that send and pull took; and a warning if clients may not reach the
      advertised address, else "".
    Raises: RemotingError: a server did not answer, or not as it should.
    """
    failure: RemotingError | None = None
    async with trio.open_nursery() as nursery:
        client = RemotingClient(connect_timeout_s=CONNECT_TIMEOUT_S, tls=tls)
        await nursery.start(client.run)
        try:
            client.credentials = accounts[0]
            await _must(client, namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
            client.credentials = accounts[1]
            warning = "" if advertised == broker else await _unreachable(client, advertised)
            start_s = trio.current_time()
            if takes_sends:
                await _send_and_pull(client, broker)
            check_ms = (trio.current_time() - start_s) * 1000
        except RemotingError as error:
            failure = error  # raised below, outside the nursery, which would wrap it in a group
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return check_ms, warning


async def _unreachable(client: RemotingClient, advertised: str) -> str:
    try:
        await client.channel(advertised)
    except RemotingConnectError as error:
        return (
            f"routes name this broker as {advertised}, which this machine cannot reach ({error}); "
            "if clients cannot reach it either, set brokerIP1 or --host"
        )
    return ""


async def _send_and_pull(client: RemotingClient, broker: str) -> None:
    await _must(
        client,
        broker,
        RequestCode.SEND_MESSAGE,
        probe_fields(TOPIC),
        {ResponseCode.INVALID_PARAMETER},
    )
    # Queue 0 exists in every topic.
    await _must(
        client,
        broker,
        RequestCode.PULL_MESSAGE,
        {
            "consumerGroup": CONSUMER_GROUP,
            "topic": TOPIC,
            "queueId": "0",
            "queueOffset": "0",
            "maxMsgNums": "1",
            "sysFlag": str(SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        },
        PULL_ANSWERS,
    )


async def _must(
    client: RemotingClient,
    address: str,
    code: RequestCode,
    ext_fields: dict[str, str],
    expected: Collection[int] = (ResponseCode.SUCCESS,),
) -> None:
    """Call. Raises: RemotingError: no response, or one with another code."""
    request = RemotingCommand(int(code), ext_fields=ext_fields)
    response = await client.call(address, request, TIMEOUT_S)
    if response.code not in expected:
        raise RemotingError(f"{code.name} was answered {response.code}: {response.remark}")
