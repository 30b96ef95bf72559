"""`Admin`: what an administrator can ask and do.

Java counterpart: DefaultMQAdminExt, mqadmin.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from ..client import Client
from ..options import ClientOptions
from ..producer import own_client
from ..task_host import Openable
from .asking import Brokers
from .brokers import BrokerVerbs
from .clients import ClientVerbs
from .filters import FilterVerbs
from .groups import GroupVerbs
from .messages import MessageVerbs
from .offsets import OffsetVerbs
from .static_topics import StaticTopicVerbs
from .topics import TopicVerbs
from .traces import TraceVerbs

P = ParamSpec("P")
T = TypeVar("T")


def forwarded(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method of `Admin` that is the verb of this name of one of its parts.

    It has the verb's parameters, result, errors and docstring.
    """
    part, name = verb.__qualname__.split(".")

    @functools.wraps(verb)
    async def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await verb(self._parts[part], *args, **kwargs)

    call.__qualname__ = f"Admin.{name}"
    return call


class Admin(Openable):
    """Administers a cluster: ours, or Apache's from 4.9 on.

    Use: `async with Admin("rocketmq://127.0.0.1:9876") as admin:`, under trio or asyncio.

    Names of topics and groups are without the client's namespace. A verb that asks several brokers
    gives what all of them have; when some fail it raises BrokersError, which names them and has the
    rest in `partial`. A request that a broker does not serve (yet) is a ServerError with
    REQUEST_CODE_NOT_SUPPORTED.

    Args:
      client: a URL, or an open Client that is shared with others.
      options: see ClientOptions; only with a URL.

    Raises: ConfigurationError: an argument cannot be right.
    """

    def __init__(self, client: str | Client, **options: Unpack[ClientOptions]) -> None:
        self._is_own_client = isinstance(client, str)
        self._client = own_client(client, options)
        self._stack = AsyncExitStack()
        brokers = Brokers(self._client)
        topics = TopicVerbs(brokers)
        groups = GroupVerbs(brokers, topics)
        clients = ClientVerbs(brokers)
        broker_verbs = BrokerVerbs(brokers)
        offsets = OffsetVerbs(brokers, topics, groups, clients, broker_verbs)
        messages = MessageVerbs(brokers, topics)
        traces, filters = TraceVerbs(messages), FilterVerbs(brokers)
        statics = StaticTopicVerbs(brokers)
        parts = (
            topics, statics, groups, clients, offsets, messages, traces, broker_verbs, filters,
        )  # fmt: skip
        self._parts: Final = {type(part).__name__: part for part in parts}

    @property
    def client(self) -> Client:
        """The client: its own, or the shared one."""
        return self._client

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._is_own_client:
                await stack.enter_async_context(self._client)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def _check_loop(self) -> None:
        self._client.check_loop()

    # Topics

    topics: Final = forwarded(TopicVerbs.topics)
    topic: Final = forwarded(TopicVerbs.topic)
    create_topic: Final = forwarded(TopicVerbs.create_topic)
    delete_topic: Final = forwarded(TopicVerbs.delete_topic)

    static_topic: Final = forwarded(StaticTopicVerbs.static_topic)
    create_static_topic: Final = forwarded(StaticTopicVerbs.create_static_topic)
    move_static_topic: Final = forwarded(StaticTopicVerbs.move_static_topic)

    # Groups

    groups: Final = forwarded(GroupVerbs.groups)
    group: Final = forwarded(GroupVerbs.group)
    create_group: Final = forwarded(GroupVerbs.create_group)
    delete_group: Final = forwarded(GroupVerbs.delete_group)

    # Clients

    clients: Final = forwarded(ClientVerbs.clients)
    producers: Final = forwarded(ClientVerbs.producers)
    running_info: Final = forwarded(ClientVerbs.running_info)
    consume_directly: Final = forwarded(ClientVerbs.consume_directly)

    # Offsets

    offsets: Final = forwarded(OffsetVerbs.offsets)
    lag: Final = forwarded(OffsetVerbs.lag)
    reset_offset: Final = forwarded(OffsetVerbs.reset_offset)

    # Messages

    message: Final = forwarded(MessageVerbs.message)
    messages_by_key: Final = forwarded(MessageVerbs.messages_by_key)
    messages_by_time: Final = forwarded(MessageVerbs.messages_by_time)
    dead_letters: Final = forwarded(MessageVerbs.dead_letters)
    message_trace: Final = forwarded(TraceVerbs.message_trace)

    # Brokers

    cluster: Final = forwarded(BrokerVerbs.cluster)
    broker_runtime_info: Final = forwarded(BrokerVerbs.broker_runtime_info)
    broker_config: Final = forwarded(BrokerVerbs.broker_config)
    update_broker_config: Final = forwarded(BrokerVerbs.update_broker_config)

    # Class filters

    put_filter_class: Final = forwarded(FilterVerbs.put_filter_class)
    filter_classes: Final = forwarded(FilterVerbs.filter_classes)
    remove_filter_class: Final = forwarded(FilterVerbs.remove_filter_class)
