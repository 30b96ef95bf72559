"""Members of groups: who is connected, and each member's own subscriptions, by few requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio

from ..client.admin.asking import Brokers, is_silence
from ..client.admin.clients import ClientVerbs
from ..client.errors import ClientError, reading_answer
from ..common.texts import one_line
from ..remoting import fastjson
from ..remoting.bodies import ConsumerConnection, SubscriptionData
from ..remoting.headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode

if TYPE_CHECKING:
    from ..client import BrokerInfo, GroupClients
    from .asking import Round

AT_ONCE: Final = 16
"""Questions for members that one broker has at one time: it answers others meanwhile."""


class Members(NamedTuple):
    """The members of some groups.

    Attributes:
      groups: by the group's name.
      errors: by the name of a broker, why it did not answer all; members may be missing then.
    """

    groups: Mapping[str, GroupClients]
    errors: Mapping[str, str]


async def members(asked: Round, brokers: Iterable[BrokerInfo], groups: Iterable[str]) -> Members:
    """The members of the groups that are shown: one request for each group to each broker.

    Args:
      asked: the round of all requests.
      brokers: as `Admin.cluster` has them.
      groups: names in the client's namespace.
    """
    known = Brokers(asked.client)
    full = {name: known.full(name) for name in groups}
    found: dict[str, dict[str, ConsumerConnection | None]] = {name: {} for name in full}
    errors: dict[str, str] = {}

    async def ask(broker: BrokerInfo, address: str, name: str, limiter: anyio.Semaphore) -> None:
        async with limiter:
            try:
                found[name][broker.name] = await connected(asked, address, full[name])
            except ClientError as error:
                if broker.name not in errors or is_silence(error):
                    errors[broker.name] = one_line(error)

    async with anyio.create_task_group() as tasks:
        for broker in brokers:
            if broker.address is None:
                errors[broker.name] = "none of its addresses is up"
                continue
            one = partial(ask, broker, broker.address, limiter=anyio.Semaphore(AT_ONCE))
            for name in full:
                tasks.start_soon(one, name)
    merge = ClientVerbs(known).group_clients
    return Members({name: merge(name, parts) for name, parts in found.items()}, errors)


async def connected(asked: Round, address: str, full: str) -> ConsumerConnection | None:
    """The members of a group that are connected to one broker; None: there are none.

    Args:
      full: the group's name with its namespace.

    Raises: ServerError; BadAnswerError. As `Round.request`.
    """
    header = GetConsumerConnectionListRequestHeader(consumer_group=full)
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    ok = (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE)
    answer = await asked.request(address, code, header, ok=ok)
    if answer.code != ResponseCode.SUCCESS:
        return None
    with reading_answer(address):
        body = ConsumerConnection.from_body(answer.body)
    return body if body.connection_set else None


async def subscriptions(
    asked: Round, address: str, full: str, client_id: str
) -> list[SubscriptionData] | None:
    """What a member says that it wants; the broker knows the group's latest heartbeat only.

    Args:
      address: of a broker that it is connected to, which hands the question on.
      full: the group's name with its namespace.

    Returns: None: it does not say, or not in time.
    """
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=full, client_id=client_id, jstack_enable=False
    )
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    try:
        answer = await asked.request(address, code, header, is_forwarded=True)
        with reading_answer(address):
            return _listed(fastjson.loads(answer.body))
    except ClientError:
        return None


def _listed(tree: object) -> list[SubscriptionData] | None:
    listed = tree.get("subscriptionSet") if isinstance(tree, Mapping) else None
    if not isinstance(listed, list):
        return None
    return [SubscriptionData.from_tree(each) for each in listed]
