"""A consumer's answers to administrators: running info, offsets, reset, direct consumption.

Java counterpart: ClientRemotingProcessor, ConsumerRunningInfo, ConsumeMessageDirectlyResult.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, TypeAlias

import anyio
import msgspec

from ...remoting import fastjson
from ...remoting.bodies import SubscriptionData
from ...remoting.codec import RemotingCommand
from ...remoting.message import MessageExt
from ...remoting.message_codec import decode_record
from ...remoting.mq_version import CURRENT_VERSION, version_name
from ...remoting.request_codes import RequestCode
from ..connection.client import Client
from ..connection.connection import Connection
from ..connection.members import Processor
from ..messages.body_types import ValueT
from ..messages.message import MessageQueue
from ..pulling.offsets import offset_table
from ..tasks import clock
from .pop_queue import PopQueue
from .pushed_message import AssignedQueue, PushedMessage

logger = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024

Handler: TypeAlias = Callable[[PushedMessage[ValueT]], Awaitable[None] | None]
"""Handles a message. An exception means that the message is redelivered."""

BatchHandler: TypeAlias = Callable[[list[PushedMessage[ValueT]]], Awaitable[None] | None]
"""Handles a batch of messages. An exception means that they are redelivered, except those that it
has settled."""

DirectCall: TypeAlias = Callable[[PushedMessage], Awaitable[None]]
"""Calls a handler with a message and waits for its end. An exception means that it failed."""

AsPushed: TypeAlias = Callable[[MessageExt, MessageQueue], PushedMessage]


class ReportingConsumer(Protocol):
    """The part of a push consumer that administrators can query; see PushConsumer."""

    @property
    def client(self) -> Client:
        """Its client."""
        ...

    @property
    def is_orderly(self) -> bool:
        """Whether the messages of each queue are consumed one at a time, in order."""
        ...

    @property
    def consume_timeout_s(self) -> float:
        """Time limit of a handler, in seconds."""
        ...

    @property
    def started_ms(self) -> int:
        """Time of opening, in milliseconds since 1970."""
        ...

    @property
    def subscriptions(self) -> list[SubscriptionData]:
        """Its subscriptions."""
        ...

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The offset of each queue at which consumption continues."""
        ...

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets."""


def processors(
    consumer: ReportingConsumer,
    assigned: Mapping[MessageQueue, AssignedQueue],
    popped: Mapping[MessageQueue, PopQueue],
    pushed: AsPushed,
    direct_call: Callable[[], DirectCall | None],
) -> Mapping[int, Processor]:
    """A consumer's processors for the requests of administrators, by request code.

    Args:
      assigned: the queues that it pulls from, with their messages in memory; it changes.
      popped: the queues that it pops from; it changes.
      pushed: makes a message for the handler that did not arrive by a pull.
      direct_call: what calls the handler of `run`; None while it is not running.
    """

    async def reset_offset(
        connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | None:
        offsets = offset_table(fastjson.loads(command.body), "offsetTable")
        logger.info("an administrator resets offsets: %s", offsets)
        await consumer.reset(offsets)
        return command.answer()

    async def get_offsets(
        connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | None:
        topic = command.ext_fields.get("topic")
        table = {
            queue: offset for queue, offset in consumer.positions.items() if queue.topic == topic
        }
        return command.answer(body=fastjson.dumps({"messageQueueTable": table}))

    async def get_running_info(
        connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | None:
        return command.answer(body=fastjson.dumps(running_info(consumer, assigned, popped)))

    async def consume_directly(
        connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | None:
        result = await _consume_directly(consumer, pushed, direct_call(), command)
        return command.answer(body=fastjson.dumps(result))

    return {
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: reset_offset,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: get_offsets,
        RequestCode.GET_CONSUMER_RUNNING_INFO: get_running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: consume_directly,
    }


def running_info(
    consumer: ReportingConsumer,
    assigned: Mapping[MessageQueue, AssignedQueue],
    popped: Mapping[MessageQueue, PopQueue],
) -> dict[str, object]:
    """The consumer's ConsumerRunningInfo, which `mqadmin consumerStatus` and the Dashboard show."""
    # The process queues have monotonic times: convert them to times since 1970.
    wall_ms = consumer.client.wall_ms()
    since_ms = wall_ms - clock.monotonic_ms()
    return {
        "jstack": None,
        "mqTable": {
            queue: {
                "commitOffset": consumer.positions.get(queue, 0),
                "cachedMsgMinOffset": held.oldest.queue_offset if held.oldest else 0,
                "cachedMsgMaxOffset": held.oldest.queue_offset + held.span if held.oldest else 0,
                "cachedMsgCount": held.count,
                "cachedMsgSizeInMiB": held.size // _MIB,
                "transactionMsgMinOffset": 0,
                "transactionMsgMaxOffset": 0,
                "transactionMsgCount": 0,
                "locked": held.is_locked,
                "tryUnlockTimes": held.try_unlock_times,
                "lastLockTimestamp": round(since_ms + held.last_lock_ms),
                "droped": held.is_dropped,
                "lastPullTimestamp": round(since_ms + held.last_pull_ms),
                "lastConsumeTimestamp": round(since_ms + held.last_consume_ms),
            }
            for queue, held in ((q, each.process_queue) for q, each in assigned.items())
        },
        "mqPopTable": {
            queue: {
                "waitAckCount": len(each.unsettled),
                "droped": each.is_dropped,
                "lastPopTimestamp": round(since_ms + each.last_pop_ms),
            }
            for queue, each in popped.items()
        },
        "properties": {
            "PROP_NAMESERVER_ADDR": ";".join(consumer.client.url.name_servers),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CLIENT_VERSION": version_name(CURRENT_VERSION),
            "PROP_THREADPOOL_CORE_SIZE": "1",
            "PROP_CONSUMEORDERLY": "true" if consumer.is_orderly else "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
        },
        "statusTable": {
            subscription.topic: {
                "consumeFailedMsgs": 0,
                "consumeFailedTPS": 0.0,
                "consumeOKTPS": 0.0,
                "consumeRT": 0.0,
                "pullRT": 0.0,
                "pullTPS": 0.0,
            }
            for subscription in consumer.subscriptions
        },
        "subscriptionSet": [_plain(subscription) for subscription in consumer.subscriptions],
        "userConsumerInfo": {},
    }


def _plain(subscription: SubscriptionData) -> object:
    return msgspec.to_builtins(subscription)


async def _consume_directly(
    consumer: ReportingConsumer,
    pushed: AsPushed,
    call: DirectCall | None,
    command: RemotingCommand,
) -> dict[str, object]:
    """Call the handler with one message; this does not affect offsets and redeliveries."""
    start_ms = clock.monotonic_ms()
    result: dict[str, object] = {
        "order": consumer.is_orderly,
        "autoCommit": True,
        "consumeResult": "CR_SUCCESS",
        "remark": None,
    }
    if call is None:
        result["consumeResult"] = "CR_THROW_EXCEPTION"
        result["remark"] = "this consumer has no handler to call: it iterates over its messages"
    else:
        ext = decode_record(command.body, inflate=True)
        queue = MessageQueue(ext.topic, command.ext_fields.get("brokerName", ""), ext.queue_id)
        try:
            with anyio.fail_after(consumer.consume_timeout_s):
                await call(pushed(ext, queue))
        except Exception:  # noqa: BLE001 - an error of the handler is the result of the request
            result["consumeResult"] = "CR_THROW_EXCEPTION"
            result["remark"] = traceback.format_exc()
    result["spentTimeMills"] = round(clock.monotonic_ms() - start_ms)
    return result
