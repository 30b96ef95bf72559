"""The requests that a stopped store answers: a table, and the refusal of all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ...remoting.channel import Answer, Channel, Deferred, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode

OF_BROKER: Final = frozenset(
    {
        # Messages.
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        # Queues.
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        # Topics.
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        # Groups, and their offsets. That no member is connected is what these say of members.
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        # Delayed messages.
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_TIMER_METRICS,
        # The broker.
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
    }
)
"""What is read from the files, and changes nothing."""

OF_NAME_SERVER: Final = frozenset(
    {
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_TOPICS_BY_CLUSTER,
    }
)
"""Routes, which follow from the topics. What name servers alone keep, such as KV items, is not in
a store."""

COMMIT_FLAG: Final = 0x1
SUSPEND_FLAG: Final = 0x2
"""Bits of a pull's sysFlag. Source: PullSysFlag."""
FLAG_DIGITS_MAX: Final = 10
"""Of a number of 32 bits; a longer one is for the processor to refuse."""


def checked(process: Processor, problem: Callable[[], str]) -> Processor:
    """A processor that is asked only while there is no problem.

    Args:
      problem: says why it cannot answer, in words; "": it can.
    """

    def serve(request: RemotingCommand, channel: Channel) -> Answer:
        text = problem()
        if text:
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, text)
        return process(request, channel)

    return serve


def readable(
    processors: Mapping[int, Processor],
    answered: frozenset[RequestCode],
    problem: Callable[[], str],
) -> dict[int, Processor]:
    """The processors of a server that only answers what it reads.

    Args:
      processors: all that the server has, by request code.
      answered: the codes that are answered; every other code is refused in words.
      problem: says why nothing can be answered any more; "": it can.
    """
    table: dict[int, Processor] = {int(code): _refuse for code in RequestCode}
    for code in answered:
        if int(code) in processors:
            table[int(code)] = checked(processors[int(code)], problem)
    return table


def _refuse(request: RemotingCommand, channel: Channel) -> Answer:
    """Refuse what needs a running broker."""
    try:
        name = RequestCode(request.code).name
    except ValueError:
        name = f"request {request.code}"
    raise RequestRefused(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        f"the store of a stopped broker is opened to be read: start the broker for {name}",
    )


def plain_pull(process: Processor) -> Processor:
    """A pull that neither waits for messages, of which none come, nor commits an offset."""

    def serve(request: RemotingCommand, channel: Channel) -> Answer:
        flag = request.ext_fields.get("sysFlag", "")
        if flag.isascii() and flag.isdigit() and len(flag) <= FLAG_DIGITS_MAX:
            fields = dict(request.ext_fields)
            fields["sysFlag"] = str(int(flag) & ~(COMMIT_FLAG | SUSPEND_FLAG))
            request.ext_fields = fields
        return process(request, channel)

    return serve


def edited(process: Processor, edit: Callable[[bytes], bytes]) -> Processor:
    """A processor whose answers' bodies are edited.

    Args:
      process: answers at once, or in steps.
    """

    def changed(answer: RemotingCommand | None) -> RemotingCommand | None:
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            answer.body = edit(bytes(answer.body))
        return answer

    def serve(request: RemotingCommand, channel: Channel) -> Answer:
        answer = process(request, channel)
        if isinstance(answer, Deferred):

            async def run(deferred: Deferred = answer) -> RemotingCommand | None:
                return changed(await deferred.run())

            return Deferred(run)
        return changed(answer) if isinstance(answer, RemotingCommand) else answer

    return serve
