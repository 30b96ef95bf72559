"""The self-check of `trocket up`: one message, sent and consumed over real sockets.

It does what a client does: asks the name server for the route, sends to the broker, pulls, and
compares. The topic and the groups are those that RocketMQ reserves for self-tests.

Source: RocketMQ TopicValidator.RMQ_SYS_SELF_TEST_TOPIC, MixAll.SELF_TEST_PRODUCER_GROUP.
"""

from __future__ import annotations

import os

import trio

from ..remoting.client import RemotingClient
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemotingConnectError, RemotingError
from ..remoting.message_codec import decode_messages
from ..remoting.pull_sys_flag import SUBSCRIPTION
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode

TOPIC = "BenchmarkTest"
PRODUCER_GROUP = "SELF_TEST_P_GROUP"
CONSUMER_GROUP = "SELF_TEST_C_GROUP"

TIMEOUT_S = 5.0
"""Per call. RocketMQ's clients wait 3 s for a send; creating the first file on a slow disk takes
longer."""

CONNECT_TIMEOUT_S = 1.0
"""For the advertised address, which may be unreachable from this machine."""


async def check(
    namesrv: str, broker: str, advertised: str, *, takes_sends: bool = True
) -> tuple[float, str]:
    """Send one message and consume it.

    Args:
      namesrv: `host:port` of the name server.
      broker: `host:port` at which the broker answers on this machine.
      advertised: `host:port` of the broker in the routes that clients get.
      takes_sends: false: only ask for the route.

    Returns: milliseconds from the send's start to the message's arrival; and a warning if clients
      may not reach the advertised address, else "".
    Raises: RemotingError: a server refused, did not answer, or returned another message.
    """
    failure: RemotingError | None = None
    async with trio.open_nursery() as nursery:
        client = RemotingClient(connect_timeout_s=CONNECT_TIMEOUT_S)
        await nursery.start(client.run)
        try:
            await _must(client, namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
            warning = "" if advertised == broker else await _unreachable(client, advertised)
            start_s = trio.current_time()
            if takes_sends:
                await _send_and_consume(client, broker)
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


async def _send_and_consume(client: RemotingClient, broker: str) -> None:
    body = f"self-check of process {os.getpid()}".encode()
    # Fields as clients send them; queue 0 exists in every topic. The pull begins at the offset of
    # the answer, so messages of other runs do not matter.
    sent = await _must(
        client,
        broker,
        RequestCode.SEND_MESSAGE,
        {
            "producerGroup": PRODUCER_GROUP,
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "0",
            "flag": "0",
            "properties": "",
            "reconsumeTimes": "0",
        },
        body,
    )
    pulled = await _must(
        client,
        broker,
        RequestCode.PULL_MESSAGE,
        {
            "consumerGroup": CONSUMER_GROUP,
            "topic": TOPIC,
            "queueId": "0",
            "queueOffset": sent.ext_fields["queueOffset"],
            "maxMsgNums": "1",
            "sysFlag": str(SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        },
    )
    bodies = [message.body for message in decode_messages(pulled.body)]
    if bodies[:1] != [body]:
        raise RemotingError(f"sent {body!r}, consumed {bodies!r}")


async def _must(
    client: RemotingClient,
    address: str,
    code: RequestCode,
    ext_fields: dict[str, str],
    body: bytes = b"",
) -> RemotingCommand:
    """Call and return the response.

    Raises: RemotingError: no response, or one that is not SUCCESS.
    """
    request = RemotingCommand(int(code), ext_fields=ext_fields, body=body)
    response = await client.call(address, request, TIMEOUT_S)
    if response.code != ResponseCode.SUCCESS:
        raise RemotingError(f"{code.name} was answered {response.code}: {response.remark}")
    return response
