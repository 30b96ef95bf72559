"""SQL92 subscriptions that brokers refuse: found at a consumer's start, and explained.

Without the check a consumer would start, and each of its pulls would fail.

Java counterpart: MQClientInstance.checkClientInBroker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

import anyio

from ...remoting.bodies import CheckClientRequestBody, SubscriptionData
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..connection.client import Client
from ..core.subscription import SQL92
from ..errors import ClientError, ConfigurationError, RouteNotFoundError, ServerError
from ..options.push_options import FIRST_HEARTBEAT_S
from ..tasks.task_group import together

logger = logging.getLogger(__name__)

_NO_FILTER = "does not support consumer to filter message by"
"""Part of the remark of brokers without enablePropertyFilter; its response code has other uses."""


async def check_sql_subscriptions(
    client: Client, group: str, subscriptions: Iterable[SubscriptionData]
) -> None:
    """Ask all brokers of the topics whether they accept the SQL92 subscriptions of a consumer.

    Brokers that cannot be reached or do not answer soon, and topics without a route, are passed
    over: their pulls are logged.

    Args:
      client: an open client.
      group: the consumer's group, with namespace.
      subscriptions: its subscriptions; those by tags are not checked.

    Raises:
      ConfigurationError: a broker refuses a subscription; the text has the position in the
        expression, or the key to set at the broker.
      ConnectError: no name server answered.
    """
    await together(
        partial(_check_topic, client, group, subscription)
        for subscription in subscriptions
        if subscription.expression_type == SQL92
    )


async def _check_topic(client: Client, group: str, subscription: SubscriptionData) -> None:
    """Ask all brokers of a topic at once. Raises: ConfigurationError; ConnectError."""
    try:
        route = await client.route(subscription.topic, wait_s=client.start_wait_s)
    except RouteNotFoundError:
        return
    addresses = {client.reading_address(broker.broker_name) for broker in route.broker_datas}

    async def check(address: str) -> None:
        refusal = await _check_at(client, address, group, subscription)
        if refusal is not None:
            raise refusal

    with anyio.move_on_after(FIRST_HEARTBEAT_S):
        await together(partial(check, each) for each in addresses if each is not None)


async def _check_at(
    client: Client, address: str, group: str, subscription: SubscriptionData
) -> ConfigurationError | None:
    """Ask one broker; None if it accepts the subscription, or gives no answer to this question."""
    body = CheckClientRequestBody(
        client_id=client.client_id,
        group=group,
        subscription_data=subscription,
        namespace=client.namespace or None,
    ).to_body()
    try:
        await client.request(address, RequestCode.CHECK_CLIENT_CONFIG, body=body)
    except ClientError as error:
        refusal = sql_refusal(subscription, error)
        if refusal is None:
            logger.debug("the subscription could not be checked: %s", error)
        return refusal
    return None


async def explain_failed_pull(
    client: Client, group: str, subscription: SubscriptionData, error: ClientError
) -> ClientError:
    """The refusal of the SQL92 subscription, if that is why a pull failed; else the error itself.

    A topic may be newer than the check at the start. A broker answers pulls with a wrong expression
    as those whose heartbeat has not arrived yet (FILTER_DATA_NOT_EXIST), so it is asked once more.
    """
    refusal = sql_refusal(subscription, error)
    if (
        subscription.expression_type == SQL92
        and isinstance(error, ServerError)
        and error.code == ResponseCode.FILTER_DATA_NOT_EXIST
    ):
        refusal = await _check_at(client, error.address, group, subscription)
    return refusal or error


def sql_refusal(subscription: SubscriptionData, error: ClientError) -> ConfigurationError | None:
    """The explanation, if a broker refused a request because of its SQL92 subscription."""
    if subscription.expression_type != SQL92 or not isinstance(error, ServerError):
        return None
    topic, expression = subscription.topic, subscription.sub_string
    if _NO_FILTER in error.remark:
        return ConfigurationError(
            f"the broker at {error.address} does not filter by SQL92, which the subscription of"
            f" {topic} needs: set enablePropertyFilter=true in its configuration and restart it, or"
            " subscribe by tags"
        )
    if error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        return ConfigurationError(
            f"the SQL92 expression {expression!r} for {topic} is wrong: {error.remark}"
        )
    return None
