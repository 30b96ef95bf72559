"""Telemetry, Heartbeat, NotifyClientTermination: who a client is, and commands to it.

The settings of a client are always ours: what it says of them it gets back only where it is its own
to say (topics, subscriptions, how long it waits).

Source: proxy/grpc/v2/client/ClientActivity.java, common/GrpcClientSettingsManager.java of 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from ...grpc_protocol.enums import ClientType, Code
from ...grpc_protocol.session import GrpcStatus
from ...remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionGroupConfig,
)
from ...remoting.bodies.group import ExponentialRetryPolicy, GroupRetryPolicyType
from ...remoting.bodies.heartbeat import ConsumeType
from ...remoting.headers import encode_header
from ...remoting.headers.consumer import UnregisterClientRequestHeader
from ...remoting.request_codes import RequestCode
from ..client import Client
from ..exchange import Exchange
from ..refused import Refused
from ..rules import group_of, topic_of
from ..service import Right
from ..subscriptions import subscription_of

logger = logging.getLogger(__name__)

PRODUCER_ATTEMPTS: Final = 3
PRODUCER_BACKOFF_MS: Final = (10, 1_000)
PRODUCER_BACKOFF_FACTOR: Final = 2.0
"""How a producer repeats. Source: ProxyConfig.grpcClientProducerMaxAttempts and the like."""

TOPICS_MAX: Final = 1_000
"""Topics in the settings of one client."""

PROPERTIES_MAX: Final = 32
PROPERTIES_SIZE_MAX: Final = 4 * 1024
"""Client properties, and their bytes in all. Source: clients, pull request 1237."""

LITE_SUBSCRIPTION_QUOTA: Final = 2_000
"""What settings say of lite topics. Source: SubscriptionGroupConfig.liteSubClientQuota."""

_UNKNOWN: Final = "cannot find client settings for this client"
_FAILED: Final = "process client telemetryCommand failed. "

_CONSUMERS: Final = {
    ClientType.PUSH_CONSUMER: ConsumeType.CONSUME_PASSIVELY,
    ClientType.LITE_PUSH_CONSUMER: ConsumeType.CONSUME_PASSIVELY,
    ClientType.SIMPLE_CONSUMER: ConsumeType.CONSUME_ACTIVELY,
}
"""The clients that consume. Source: ClientActivity.java of 5.5.0, which refuses the others."""


def telemetry(exchange: Exchange, command: Any) -> None:
    """Serve one message of a client's stream. What has no meaning for a server is passed over."""
    kind = command.WhichOneof("command")
    if kind == "settings":
        _take_settings(exchange, command.settings)
    elif kind in ("thread_stack_trace", "verify_message_result"):
        report = exchange.client.reports.pop(getattr(command, kind).nonce, None)
        if report is not None:
            report(command)


def refuse_telemetry(exchange: Exchange, refused: Refused) -> None:
    """End the stream of a client that cannot be served."""
    if refused.code == Code.CLIENT_ID_REQUIRED:
        exchange.answer(exchange.method.answer(status=exchange.status(refused.code, refused.text)))
        return
    status = (
        GrpcStatus.INTERNAL
        if refused.code == Code.INTERNAL_SERVER_ERROR
        else GrpcStatus.INVALID_ARGUMENT
    )
    exchange.finish(status, _FAILED + refused.text)


def _take_settings(exchange: Exchange, given: Any) -> None:
    client, service = exchange.client, exchange.service
    kind = given.WhichOneof("pub_sub")
    if kind is None:
        text = "there is no publishing or subscription data in settings"
        exchange.finish(GrpcStatus.INVALID_ARGUMENT, text)
        return
    _check_properties(given.client_properties)
    settings = service.messages.Settings(metric=service.messages.Metric(on=False))
    for name in ("client_type", "access_point", "request_timeout"):
        if given.HasField(name):
            _copy(given, settings, name)
    if given.HasField("user_agent"):
        _copy(given, settings, "user_agent")
    settings.client_properties.update(given.client_properties)
    if kind == "publishing":
        if type_name(given.client_type) == UNRECOGNIZED:
            text = "Can't get the number of an unknown enum value."
            raise Refused(Code.INTERNAL_SERVER_ERROR, text)
        _set_publishing(exchange, given.publishing, settings)
    else:
        _check_consumer(given)
        _set_subscription(exchange, given.subscription, settings)
    brokers = service.backend.brokers(topics_of(settings))
    known = client.known
    previous, known.telemetry = known.telemetry, exchange
    known.settings, known.subscribed_ms = settings, service.now_ms()
    answer = exchange.method.answer(status=exchange.status(), settings=settings)
    exchange.send(answer)
    # The newest stream of a client is its stream; the older one, of before it connected anew, ends.
    if previous is not None and previous is not exchange:
        previous.finish()
    body = heartbeat_body(client)
    if body is None:
        return
    _become_registrar(exchange, body)
    for broker in {*brokers, *client.links.brokers}:
        exchange.tell(broker, RequestCode.HEART_BEAT, body=body.to_body())


def _become_registrar(exchange: Exchange, body: HeartbeatData) -> None:
    """Have brokers know the client by the links of this connection from now on."""
    client = exchange.client
    previous, client.known.registrar = client.known.registrar, client
    if previous is not None:
        previous.registration = None
    client.registration = partial(exchange.command, RequestCode.HEART_BEAT, {}, body.to_body())


def topics_of(settings: Any) -> list[str]:
    """The topics of a client's Settings."""
    if settings.WhichOneof("pub_sub") == "publishing":
        return [topic_of(topic) for topic in settings.publishing.topics]
    return [topic_of(entry.topic) for entry in settings.subscription.subscriptions]


UNRECOGNIZED: Final = "UNRECOGNIZED"
"""What Java calls a value of an enumeration that it does not know."""


def type_name(client_type: int) -> str:
    """The name of a client's type."""
    try:
        return ClientType(client_type).name
    except ValueError:
        return UNRECOGNIZED


def _check_consumer(given: Any) -> None:
    """Refuse the settings of a client that does not consume, or that needs lite topics."""
    group = group_of(given.subscription.group)
    if given.client_type not in _CONSUMERS:
        text = f"Client type is not consumer, type: {type_name(given.client_type)}"
        raise Refused(Code.INTERNAL_SERVER_ERROR, text)
    if given.client_type == ClientType.LITE_PUSH_CONSUMER:
        raise Refused(Code.BAD_REQUEST, f"regular group cannot use LITE mode: {group}")


def _copy(source: Any, target: Any, name: str) -> None:
    value = getattr(source, name)
    if hasattr(value, "CopyFrom"):
        getattr(target, name).CopyFrom(value)
    else:
        setattr(target, name, value)


def _check_properties(given: Any) -> None:
    size = sum(len(name.encode()) + len(value.encode()) for name, value in given.items())
    if len(given) > PROPERTIES_MAX or size > PROPERTIES_SIZE_MAX:
        text = f"{len(given)} client properties of {size} bytes; at most {PROPERTIES_MAX} of"
        raise Refused(Code.ILLEGAL_CLIENT_PROPERTIES, f"{text} {PROPERTIES_SIZE_MAX} are taken")


def _set_publishing(exchange: Exchange, given: Any, settings: Any) -> None:
    if len(given.topics) > TOPICS_MAX:
        raise Refused(Code.BAD_REQUEST, f"{len(given.topics)} topics; at most {TOPICS_MAX}")
    exchange.require(*(Right(topic=topic_of(topic), publishes=True) for topic in given.topics))
    publishing = settings.publishing
    publishing.SetInParent()
    publishing.topics.extend(given.topics)
    publishing.max_body_size = exchange.service.rules.max_message_size
    publishing.validate_message_type = True
    policy = settings.backoff_policy
    policy.max_attempts = PRODUCER_ATTEMPTS
    initial_ms, max_ms = PRODUCER_BACKOFF_MS
    policy.exponential_backoff.initial.FromMilliseconds(initial_ms)
    policy.exponential_backoff.max.FromMilliseconds(max_ms)
    policy.exponential_backoff.multiplier = PRODUCER_BACKOFF_FACTOR


def _set_subscription(exchange: Exchange, given: Any, settings: Any) -> None:
    if len(given.subscriptions) > TOPICS_MAX:
        raise Refused(Code.BAD_REQUEST, f"{len(given.subscriptions)} topics; at most {TOPICS_MAX}")
    for entry in given.subscriptions:
        try:
            subscription_of(topic_of(entry.topic), entry.expression)
        except Refused as refused:
            if refused.code != Code.ILLEGAL_FILTER_EXPRESSION:
                raise
            raise Refused(refused.code, "expression format is not correct") from refused
    group = group_of(given.group)
    exchange.require(
        Right(group=group, subscribes=True),
        *(Right(topic=topic_of(entry.topic), subscribes=True) for entry in given.subscriptions),
    )
    config = exchange.service.backend.group(group) or SubscriptionGroupConfig(group_name=group)
    rules, subscription = exchange.service.rules, settings.subscription
    subscription.group.CopyFrom(given.group)
    subscription.subscriptions.extend(given.subscriptions)
    subscription.fifo = config.consume_message_orderly
    subscription.receive_batch_size = rules.grpc_client_consumer_long_polling_batch_size
    subscription.long_polling_timeout.FromMilliseconds(
        rules.grpc_client_consumer_max_long_polling_timeout_millis
    )
    subscription.lite_subscription_quota = LITE_SUBSCRIPTION_QUOTA
    subscription.max_lite_topic_size = rules.max_lite_topic_size
    _set_retry_policy(settings.backoff_policy, config)


def _set_retry_policy(policy: Any, config: SubscriptionGroupConfig) -> None:
    policy.max_attempts = config.retry_max_times + 1
    retries = config.group_retry_policy
    if retries.type == GroupRetryPolicyType.EXPONENTIAL:
        exponential = retries.exponential_retry_policy or ExponentialRetryPolicy()
        backoff = policy.exponential_backoff
        backoff.initial.FromMilliseconds(exponential.initial)
        backoff.max.FromMilliseconds(exponential.max)
        backoff.multiplier = float(exponential.multiplier)
        return
    delays = retries.customized_retry_policy
    for delay_ms in _DEFAULT_DELAYS_MS if delays is None else delays.next:
        policy.customized_backoff.next.add().FromMilliseconds(delay_ms)


_DEFAULT_DELAYS_MS: Final = tuple(
    seconds * 1000
    for seconds in (
        1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
    )
)  # fmt: skip
"""Source: CustomizedRetryPolicy."""


def heartbeat_body(client: Client) -> HeartbeatData | None:
    """What a client is, as brokers know it; None: it is neither producer nor consumer."""
    settings = client.settings
    if settings.WhichOneof("pub_sub") == "publishing":
        # A producer's group is its topic, for the checks of transactions.
        groups = dict.fromkeys(topic_of(topic) for topic in settings.publishing.topics)
        producers = [ProducerData(group_name=group) for group in groups]
        return HeartbeatData(client_id=client.id, producer_data_set=producers)
    consume_type = _CONSUMERS.get(settings.client_type)
    if consume_type is None:
        return None
    subscription = settings.subscription
    consumer = ConsumerData(
        group_name=group_of(subscription.group),
        consume_type=consume_type,
        subscription_data_set=[
            subscription_of(topic_of(entry.topic), entry.expression, client.subscribed_ms)
            for entry in subscription.subscriptions
        ],
    )
    return HeartbeatData(client_id=client.id, consumer_data_set=[consumer])


def heartbeat(exchange: Exchange, request: Any) -> None:
    """Register a client again."""
    client = exchange.client
    if client.settings is None:
        raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, _UNKNOWN)
    _check_type(client.settings.client_type, request)
    body = heartbeat_body(client)
    if body is None:
        raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, type_name(client.settings.client_type))
    brokers = exchange.service.backend.brokers(topics_of(client.settings))
    registrar = client.known.registrar
    if registrar is None:  # its connection has ended
        _become_registrar(exchange, body)
    elif registrar is not client:
        # By the links that brokers know: others would be another member of the group.
        for broker in {*brokers, *registrar.links.brokers}:
            _tell(exchange, registrar, broker, RequestCode.HEART_BEAT, {}, body.to_body())
        exchange.succeed()
        return
    exchange.ask_each(
        {*brokers, *client.links.brokers}, RequestCode.HEART_BEAT, body.to_body(), exchange.succeed
    )


def _tell(
    exchange: Exchange,
    registrar: Client,
    broker: str,
    code: RequestCode,
    fields: Mapping[str, str],
    body: bytes = b"",
) -> None:
    """Ask a broker for something on the connection by which it knows the client."""
    command = exchange.command(code, fields, body)
    registrar.links.to(broker).ask(command, lambda answer: None, exchange.call.timeout_s)
    if registrar is not exchange.client:
        registrar.serve()  # its own connection does so in its own turns


def _check_type(client_type: int, request: Any) -> None:
    """Refuse a request of a client whose type has none, or of a consumer without a group."""
    if client_type in _CONSUMERS:
        group_of(request.group)
    elif client_type != ClientType.PRODUCER:
        raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, type_name(client_type))


def notify_client_termination(exchange: Exchange, request: Any) -> None:
    """Unregister a client that ends."""
    client = exchange.client
    if client.settings is None:
        raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, _UNKNOWN)
    body, client_type = heartbeat_body(client), client.settings.client_type
    known = client.known
    registrar, known.registrar = known.registrar or client, None
    known.settings = registrar.registration = None
    client.renewals.clear()
    _check_type(client_type, request)
    if body is not None:
        for broker in registrar.links.brokers:
            _unregister(exchange, registrar, broker, body)
    exchange.succeed()


def _unregister(exchange: Exchange, registrar: Client, broker: str, body: HeartbeatData) -> None:
    client_id, code = exchange.client.id, RequestCode.UNREGISTER_CLIENT
    for producer in body.producer_data_set:
        header = UnregisterClientRequestHeader(
            client_id=client_id, producer_group=producer.group_name
        )
        _tell(exchange, registrar, broker, code, encode_header(header))
    for consumer in body.consumer_data_set:
        header = UnregisterClientRequestHeader(
            client_id=client_id, consumer_group=consumer.group_name
        )
        _tell(exchange, registrar, broker, code, encode_header(header))
