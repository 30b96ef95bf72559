"""`Admin`: what an administrator can ask and do.

Java counterpart: DefaultMQAdminExt, mqadmin.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from ..checks.misuse import explained, knows_elsewhere
from ..checks.other_names import ADMIN
from ..connection.client import Client
from ..connection.grpc import refuse_by
from ..connection.options import ClientOptions
from ..sending.producer import own_client
from ..tasks.task_host import Openable
from .accounts import AccountVerbs
from .asking import Brokers
from .brokers import BrokerVerbs
from .clients import ClientVerbs
from .controllers import ControllerVerbs
from .counters import CounterVerbs
from .filters import FilterVerbs
from .groups import GroupVerbs
from .messages import MessageVerbs
from .name_servers import NameServerVerbs
from .offsets import OffsetVerbs
from .pops import PopVerbs
from .progress import ProgressVerbs
from .static_topics import StaticTopicVerbs
from .topics import TopicVerbs
from .traces import TraceVerbs
from .transactions import TransactionVerbs
from .upkeep import UpkeepVerbs

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


@knows_elsewhere(ADMIN)
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

    @explained
    def __init__(self, client: str | Client, **options: Unpack[ClientOptions]) -> None:
        self._is_own_client = isinstance(client, str)
        self._client = own_client(client, options, type(self).__name__)
        refuse_by(
            self._client.grpc, "an Admin", "give the address of a name server, rocketmq://host:port"
        )
        self._stack = AsyncExitStack()
        brokers = Brokers(self._client)
        topics = TopicVerbs(brokers)
        groups = GroupVerbs(brokers, topics)
        clients = ClientVerbs(brokers)
        broker_verbs = BrokerVerbs(brokers)
        offsets = OffsetVerbs(brokers, topics, groups, clients, broker_verbs)
        messages = MessageVerbs(brokers, topics)
        counters = CounterVerbs(brokers)
        parts = (
            StaticTopicVerbs(brokers),
            *(topics, groups, clients, offsets, messages, broker_verbs, counters),
            ProgressVerbs(brokers, clients, groups, offsets, counters),
            UpkeepVerbs(brokers, topics),
            TransactionVerbs(brokers),
            NameServerVerbs(brokers),
            PopVerbs(brokers, counters),
            TraceVerbs(messages),
            FilterVerbs(brokers),
            AccountVerbs(brokers),
            ControllerVerbs(brokers),
        )
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
    update_topic_perm: Final = forwarded(UpkeepVerbs.update_topic_perm)
    order_conf: Final = forwarded(UpkeepVerbs.order_conf)
    put_order_conf: Final = forwarded(UpkeepVerbs.put_order_conf)
    delete_order_conf: Final = forwarded(UpkeepVerbs.delete_order_conf)
    topic_stats: Final = forwarded(CounterVerbs.topic_stats)
    topic_offsets: Final = forwarded(CounterVerbs.topic_offsets)
    topic_groups: Final = forwarded(CounterVerbs.topic_groups)
    system_topics: Final = forwarded(CounterVerbs.system_topics)
    queue_units: Final = forwarded(CounterVerbs.queue_units)

    static_topic: Final = forwarded(StaticTopicVerbs.static_topic)
    create_static_topic: Final = forwarded(StaticTopicVerbs.create_static_topic)
    move_static_topic: Final = forwarded(StaticTopicVerbs.move_static_topic)

    # Groups

    groups: Final = forwarded(GroupVerbs.groups)
    group: Final = forwarded(GroupVerbs.group)
    create_group: Final = forwarded(GroupVerbs.create_group)
    delete_group: Final = forwarded(GroupVerbs.delete_group)
    progress: Final = forwarded(ProgressVerbs.progress)
    all_progress: Final = forwarded(ProgressVerbs.all_progress)
    group_topics: Final = forwarded(ProgressVerbs.group_topics)
    subscription: Final = forwarded(ProgressVerbs.subscription)

    # Clients

    clients: Final = forwarded(ClientVerbs.clients)
    members: Final = forwarded(ClientVerbs.members)
    producers: Final = forwarded(ClientVerbs.producers)
    running_info: Final = forwarded(ClientVerbs.running_info)
    consume_directly: Final = forwarded(ClientVerbs.consume_directly)
    all_producers: Final = forwarded(CounterVerbs.all_producers)

    # Offsets

    offsets: Final = forwarded(OffsetVerbs.offsets)
    lag: Final = forwarded(OffsetVerbs.lag)
    committed_offset: Final = forwarded(OffsetVerbs.committed_offset)
    reset_offset: Final = forwarded(OffsetVerbs.reset_offset)
    consume_spans: Final = forwarded(ProgressVerbs.consume_spans)
    clone_offsets: Final = forwarded(ProgressVerbs.clone_offsets)
    clone_offsets_on_brokers: Final = forwarded(ProgressVerbs.clone_offsets_on_brokers)
    correction_offsets: Final = forwarded(ProgressVerbs.correction_offsets)

    # Pops

    popped: Final = forwarded(PopVerbs.popped)
    popped_by: Final = forwarded(PopVerbs.popped_by)
    request_modes: Final = forwarded(PopVerbs.request_modes)
    set_request_mode: Final = forwarded(PopVerbs.set_request_mode)

    # Messages

    message: Final = forwarded(MessageVerbs.message)
    is_intact: Final = forwarded(MessageVerbs.is_intact)
    messages_by_key: Final = forwarded(MessageVerbs.messages_by_key)
    messages_by_time: Final = forwarded(MessageVerbs.messages_by_time)
    dead_letters: Final = forwarded(MessageVerbs.dead_letters)
    message_track: Final = forwarded(ProgressVerbs.message_track)
    message_trace: Final = forwarded(TraceVerbs.message_trace)

    # Transactions

    resume_check: Final = forwarded(TransactionVerbs.resume_check)

    # Brokers

    cluster: Final = forwarded(BrokerVerbs.cluster)
    broker_runtime_info: Final = forwarded(BrokerVerbs.broker_runtime_info)
    broker_config: Final = forwarded(BrokerVerbs.broker_config)
    update_broker_config: Final = forwarded(BrokerVerbs.update_broker_config)
    broker_stats: Final = forwarded(CounterVerbs.broker_stats)
    all_broker_stats: Final = forwarded(CounterVerbs.all_broker_stats)
    broker_consume_stats: Final = forwarded(CounterVerbs.broker_consume_stats)
    broker_topics: Final = forwarded(CounterVerbs.broker_topics)
    broker_groups: Final = forwarded(GroupVerbs.broker_groups)
    counter: Final = forwarded(CounterVerbs.counter)
    ha_status: Final = forwarded(CounterVerbs.ha_status)
    clean_expired_consume_queues: Final = forwarded(UpkeepVerbs.clean_expired_consume_queues)
    clean_unused_topics: Final = forwarded(UpkeepVerbs.clean_unused_topics)
    delete_expired_commit_log: Final = forwarded(UpkeepVerbs.delete_expired_commit_log)
    wipe_write_perm: Final = forwarded(UpkeepVerbs.wipe_write_perm)
    add_write_perm: Final = forwarded(UpkeepVerbs.add_write_perm)

    # Name servers

    kv_configs: Final = forwarded(UpkeepVerbs.kv_configs)
    kv_config: Final = forwarded(UpkeepVerbs.kv_config)
    put_kv_config: Final = forwarded(UpkeepVerbs.put_kv_config)
    delete_kv_config: Final = forwarded(UpkeepVerbs.delete_kv_config)
    name_server_config: Final = forwarded(NameServerVerbs.name_server_config)
    update_name_server_config: Final = forwarded(NameServerVerbs.update_name_server_config)

    # Controllers

    controllers: Final = forwarded(ControllerVerbs.controllers)
    controller_metadata: Final = forwarded(ControllerVerbs.controller_metadata)
    in_sync_sets: Final = forwarded(ControllerVerbs.in_sync_sets)
    elect_master: Final = forwarded(ControllerVerbs.elect_master)
    clean_broker_data: Final = forwarded(ControllerVerbs.clean_broker_data)
    controller_config: Final = forwarded(ControllerVerbs.controller_config)
    update_controller_config: Final = forwarded(ControllerVerbs.update_controller_config)
    broker_epochs: Final = forwarded(ControllerVerbs.broker_epochs)
    set_epochs: Final = forwarded(ControllerVerbs.set_epochs)

    # Class filters

    put_filter_class: Final = forwarded(FilterVerbs.put_filter_class)
    filter_classes: Final = forwarded(FilterVerbs.filter_classes)
    remove_filter_class: Final = forwarded(FilterVerbs.remove_filter_class)

    # Users and access control lists

    users: Final = forwarded(AccountVerbs.users)
    user: Final = forwarded(AccountVerbs.user)
    create_user: Final = forwarded(AccountVerbs.create_user)
    update_user: Final = forwarded(AccountVerbs.update_user)
    delete_user: Final = forwarded(AccountVerbs.delete_user)
    acls: Final = forwarded(AccountVerbs.acls)
    acl: Final = forwarded(AccountVerbs.acl)
    set_acl: Final = forwarded(AccountVerbs.set_acl)
    delete_acl: Final = forwarded(AccountVerbs.delete_acl)
    copy_accounts: Final = forwarded(AccountVerbs.copy_accounts)
