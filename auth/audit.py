"""Audit log: one line for each refused and each administrative request.

The logger is `trocket.auth.audit`; the key `logLevels=auth.audit:ERROR` silences it, and
`auth.audit:WARNING` leaves the refusals. A line names the request, the user (its access key, which
is not proven in a refusal), the peer's address, what the request is about, and the outcome. It
never has a password, a signature or a body.

Requests of clients and queries are logged only when they are refused: a monitor sends hundreds of
queries a minute, and a client thousands of sends. So are a slave's questions for accounts that it
has already: it asks every ten seconds. Lines about refusals are limited as all lines are
(`common/log_lines.py`), those about administrative requests practically not.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Final

from ..remoting.channel import Answer, Channel, Deferred, Processor
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RequestRefused
from ..remoting.request_codes import RequestCode
from ..remoting.signature import ACCESS_KEY

logger = logging.getLogger(__name__)

ADMINISTRATIVE_LINES_MAX: Final = 10_000
"""Lines about administrative requests in ten seconds: a script may create thousands of topics."""

_VALUE_CHARS_MAX: Final = 128
"""Characters of one value in a line."""

ROUTINE: Final = frozenset(
    {
        # Clients: messages, offsets, groups, routes.
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.POP_LITE_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
        RequestCode.LITE_SUBSCRIPTION_CTL,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        # Brokers and filter servers, at intervals.
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.REGISTER_FILTER_SERVER,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_TIMER_CHECK_POINT,
        # Queries.
        RequestCode.GET_TIMER_METRICS,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.QUERY_CORRECTION_OFFSET,
        RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        RequestCode.POLLING_INFO,
        RequestCode.GET_BROKER_LITE_INFO,
        RequestCode.GET_PARENT_TOPIC_INFO,
        RequestCode.GET_LITE_TOPIC_INFO,
        RequestCode.GET_LITE_CLIENT_INFO,
        RequestCode.GET_LITE_GROUP_INFO,
        RequestCode.LIST_MESSAGE_FILTER_CLASSES,
    }
)
"""The codes that are not logged when they are allowed; every other one is administrative."""

_TARGETS: Final = (
    "topic",
    "group",
    "consumerGroup",
    "groupName",
    "srcGroup",
    "destGroup",
    "username",
    "subject",
    "resource",
    "policyType",
    "brokerName",
    "namespace",
    "key",
    "className",
)
"""The fields of headers that say what a request is about. None of them has a secret."""

_SENDS_WITH_LETTERS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
"""Their header's `b` is the topic."""

_VERSION: Final = "accountsVersion"
"""The field of AUTH_LIST_USER and its answer; ours tells it to super users only."""

_PLAIN: Final = re.compile(r"[\w.:%*@/+|-]+", re.ASCII)


def note_refused(request: RemotingCommand, channel: Channel, refusal: RequestRefused) -> None:
    """Log a request that access control refuses."""
    logger.warning(
        "refused: %(request)s user=%(user)s address=%(address)s %(target)s"
        "outcome=refused code=%(code)s reason=%(reason)s",
        {**_facts(request, channel), "code": refusal.code, "reason": _shown(refusal.remark)},
    )


def audited(code: int, process: Processor) -> Processor:
    """A processor that logs each request of an administrative code with its outcome.

    Args:
      code: its request code; the processor of a ROUTINE code is returned as it is.
      process: serves requests that access control allows.
    """
    if code in ROUTINE:
        return process

    def noted(request: RemotingCommand, channel: Channel) -> Answer:
        try:
            answer = process(request, channel)
        except RequestRefused as refusal:
            _note(request, channel, refusal)
            raise
        if isinstance(answer, Deferred):
            return Deferred(_noted_later(request, channel, answer))
        if not (isinstance(answer, RemotingCommand) and _is_up_to_date(request, answer)):
            _note(request, channel)
        return answer

    return noted


def _is_up_to_date(request: RemotingCommand, answer: RemotingCommand) -> bool:
    """Whether a copy of the accounts is up to date: slaves and filter servers ask every 10 s."""
    version = answer.ext_fields.get(_VERSION)
    is_known = bool(version) and version == request.ext_fields.get(_VERSION)
    return is_known and not answer.body


def _noted_later(
    request: RemotingCommand, channel: Channel, answer: Deferred
) -> Callable[[], Awaitable[RemotingCommand | None]]:
    async def run() -> RemotingCommand | None:
        try:
            result = await answer.run()
        except RequestRefused as refusal:
            _note(request, channel, refusal)
            raise
        _note(request, channel)
        return result

    return run


def _note(
    request: RemotingCommand, channel: Channel, refusal: RequestRefused | None = None
) -> None:
    """Log an administrative request that access control allowed; with the server's refusal."""
    facts = _facts(request, channel)
    more = {"lines_max": ADMINISTRATIVE_LINES_MAX}
    if refusal is None:
        logger.info(
            "administration: %(request)s user=%(user)s address=%(address)s %(target)soutcome=done",
            facts,
            extra=more,
        )
    else:
        logger.info(
            "administration: %(request)s user=%(user)s address=%(address)s %(target)s"
            "outcome=failed code=%(code)s reason=%(reason)s",
            {**facts, "code": refusal.code, "reason": _shown(refusal.remark)},
            extra=more,
        )


def _facts(request: RemotingCommand, channel: Channel) -> dict[str, object]:
    fields = request.ext_fields
    found = {name: fields[name] for name in _TARGETS if name in fields}
    if request.code in _SENDS_WITH_LETTERS and "b" in fields:
        found["topic"] = fields["b"]
    return {
        "request": _name(request.code),
        "user": _shown(fields.get(ACCESS_KEY) or "-"),
        "address": channel.remote_address,
        "target": "".join(f"{name}={_shown(value)} " for name, value in found.items()),
    }


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def _shown(text: str) -> str:
    """A value that comes from a peer, in one word or in quotes, so that it cannot forge a line."""
    text = text[:_VALUE_CHARS_MAX]
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
