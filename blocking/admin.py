"""Administration of a cluster, for programs with threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Unpack

from ..client.admin import Admin as AsyncAdmin
from ..client.admin import (
    ClientInfo,
    ClusterView,
    DirectlyConsumed,
    FilterClassInfo,
    GroupClients,
    GroupInfo,
    GroupLag,
    QueueOffsets,
    QueueReset,
    RunningInfo,
    TopicInfo,
)
from ..client.admin.messages import COUNT, TIME_MAX
from ..client.admin.results import NO_ATTRIBUTES
from ..client.admin.topics import QUEUES
from ..client.core.subscription import FilterClass
from ..client.message import MessageQueue, ReceivedMessage
from ..client.options import ClientOptions
from ..remoting.bodies import PERM_READ, PERM_WRITE
from .client import Client, Member


class Admin(Member[AsyncAdmin]):
    """Administers a cluster; the blocking `trocket.client.Admin`.

    Use: `with Admin("rocketmq://127.0.0.1:9876") as admin:`.

    Topics and groups are given and told without the client's namespace. A verb that asks several
    brokers gives what all of them have; when some fail it raises BrokersError, which names them and
    has the rest in `partial`. A request that a broker does not serve (yet) is a ServerError with
    REQUEST_CODE_NOT_SUPPORTED.

    Args:
      client: a URL, or an open Client that is shared with others.
      options: see ClientOptions; only with a URL.

    Raises: ConfigurationError: an argument cannot be right.
    """

    def __init__(self, client: str | Client, **options: Unpack[ClientOptions]) -> None:
        super().__init__(client, lambda inner: AsyncAdmin(inner, **options))

    # Topics

    def topics(self, *, is_all: bool = False) -> list[str]:
        """Names of the topics, sorted.

        Args:
          is_all: RocketMQ's own, retry topics and DLQ topics, too.

        Raises: ServerError; ConnectError: no name server answers.
        """
        return self._call(self._inner.topics, is_all=is_all)

    def topic(self, name: str) -> TopicInfo:
        """A topic's settings on each of its brokers.

        Raises: RouteNotFoundError: there is no such topic. BrokersError: `partial` has what the
          name server knows of the brokers that failed. ServerError; ConnectError.
        """
        return self._call(self._inner.topic, name)

    def create_topic(
        self,
        name: str,
        queues: int = QUEUES,
        *,
        read_queues: int | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        cluster: str | None = None,
        attributes: Mapping[str, str | None] = NO_ATTRIBUTES,
    ) -> None:
        """Create a topic on all brokers of a cluster, or change it there.

        A name server knows it when this returns.

        Args:
          queues: to write to, on each broker.
          read_queues: to read from; None: as many.
          perm: bits 4 read, 2 write.
          order: its messages are ordered.
          cluster: None: the only one there is.
          attributes: of 5.x, such as "message.type": "FIFO"; None takes one away.

        Raises: ConfigurationError: an illegal name or number, or which cluster is meant is not
          clear. ServerError; BrokersError: some brokers have it now, and some do not.
        """
        self._call(
            self._inner.create_topic,
            name,
            queues,
            read_queues=read_queues,
            perm=perm,
            order=order,
            cluster=cluster,
            attributes=attributes,
        )

    def delete_topic(self, name: str, *, cluster: str | None = None) -> None:
        """Delete a topic with its messages, at the brokers and at every name server.

        Args:
          cluster: None: wherever it is.

        Raises: RouteNotFoundError: there is no such topic. ServerError; BrokersError: some brokers
          or name servers still have it.
        """
        self._call(self._inner.delete_topic, name, cluster=cluster)

    # Groups

    def groups(self, *, is_all: bool = False) -> list[str]:
        """Names of the consumer groups that brokers have settings of, sorted.

        Args:
          is_all: RocketMQ's own too.

        Raises: BrokersError; ServerError; ConnectError.
        """
        return self._call(self._inner.groups, is_all=is_all)

    def group(self, name: str) -> GroupInfo:
        """A consumer group's settings on each broker that has some.

        Raises: NotFoundError: no broker has; BrokersError; ServerError; ConnectError.
        """
        return self._call(self._inner.group, name)

    def create_group(self, name: str, *, cluster: str | None = None, **settings: Any) -> None:
        """Create a consumer group on all brokers of a cluster, or replace its settings there.

        Args:
          cluster: None: the only one there is.
          settings: fields of remoting.bodies.SubscriptionGroupConfig, such as retry_max_times=3.

        Raises: ConfigurationError: an illegal name, no such setting, or which cluster is meant is
          not clear. ServerError; BrokersError: some brokers have it now, and some do not.
        """
        self._call(self._inner.create_group, name, cluster=cluster, **settings)

    def delete_group(
        self,
        name: str,
        *,
        cluster: str | None = None,
        keep_offsets: bool = False,
        with_topics: bool = False,
    ) -> None:
        """Delete a consumer group with its offsets. (Its next consumer makes it again.)

        Args:
          cluster: None: wherever it is.
          keep_offsets: a group of this name goes on where this one was.
          with_topics: delete its retry and DLQ topics with their messages, too, as mqadmin does.

        Raises: NotFoundError: no broker has it. ServerError; BrokersError: some still have it.
        """
        self._call(
            self._inner.delete_group,
            name,
            cluster=cluster,
            keep_offsets=keep_offsets,
            with_topics=with_topics,
        )

    # Clients

    def clients(self, group: str) -> GroupClients:
        """The members of a consumer group that are connected, to whichever broker.

        Raises: BrokersError; ServerError; ConnectError.
        """
        return self._call(self._inner.clients, group)

    def producers(self, group: str, topic: str | None = None) -> tuple[ClientInfo, ...]:
        """The producers of a group that are connected, sorted by client id.

        Args:
          topic: ask its brokers only; None: all brokers.

        Raises: RouteNotFoundError: there is no such topic. BrokersError; ServerError; ConnectError.
        """
        return self._call(self._inner.producers, group, topic)

    def running_info(self, group: str, client_id: str, *, with_stacks: bool = False) -> RunningInfo:
        """How a consumer says it is.

        Args:
          with_stacks: the stacks of its threads too.

        Raises: NotFoundError: it is not connected. BrokersError; ServerError: it did not answer.
        """
        return self._call(self._inner.running_info, group, client_id, with_stacks=with_stacks)

    def consume_directly(
        self, group: str, client_id: str, message: ReceivedMessage
    ) -> DirectlyConsumed:
        """Have a consumer handle one message now; offsets and retries are left alone.

        Args:
          message: as one of the look-ups gave it.

        Raises: NotFoundError: the consumer is not connected to the message's broker. ServerError;
          ConnectError.
        """
        return self._call(self._inner.consume_directly, group, client_id, message)

    # Offsets

    def offsets(self, topic: str) -> list[QueueOffsets]:
        """What each queue of a topic holds, sorted by broker name and queue id.

        Raises: RouteNotFoundError: there is no such topic. BrokersError; ServerError; ConnectError.
        """
        return self._call(self._inner.offsets, topic)

    def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """How far a group is in each queue.

        Args:
          topic: None: all topics that the group has offsets of or subscribes to, its retry topic
            among them.

        Raises: NotFoundError: nobody knows anything of the group. RouteNotFoundError: there is no
          such topic. BrokersError: `partial` has the other brokers' queues. ServerError;
          ConnectError.
        """
        return self._call(self._inner.lag, group, topic)

    def reset_offset(
        self,
        group: str,
        topic: str,
        *,
        to: Literal["begin", "end"] | None = None,
        timestamp_ms: int | None = None,
        offsets: Mapping[MessageQueue, int] | None = None,
        dry_run: bool = False,
    ) -> list[QueueReset]:
        """Let a group go on elsewhere in a topic; forward or back.

        Where consumers of the group are connected, the broker tells them, and they do it within
        seconds; else the offsets are written.

        Args:
          to: the first message there is, or the next to come.
          timestamp_ms: the first message stored then or later, ms since 1970. (Brokers of 4.x that
            tell consumers may take the one before.)
          offsets: queue to the next offset to consume; queues that are not in it stay. While
            consumers are connected only brokers of 5.x can do that.
          dry_run: only tell what would be done.
          One of the first three is given.

        Returns: sorted by broker name and queue id.
        Raises: ConfigurationError: arguments; or consumers are connected, and the broker cannot set
          single queues then. RouteNotFoundError: there is no such topic. BrokersError: `partial`
          has what the others did. ServerError; ConnectError.
        """
        return self._call(
            self._inner.reset_offset,
            group,
            topic,
            to=to,
            timestamp_ms=timestamp_ms,
            offsets=offsets,
            dry_run=dry_run,
        )

    # Messages

    def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """A message by its id: the one that its producer gave it, or the broker's.

        A broker's id says where the message is. A producer's is looked up by the brokers' index,
        which has it a moment after the message was stored; of several with one id the first
        stored one is returned.

        Args:
          topic: of the message; None: all topics are searched for a producer's id.

        Raises: NotFoundError: there is none. ConfigurationError: not an id. RouteNotFoundError:
          there is no such topic. BrokersError; ServerError; ConnectError.
        """
        return self._call(self._inner.message, message_id, topic)

    def messages_by_key(
        self, topic: str, key: str, *, count: int = COUNT, begin_ms: int = 0, end_ms: int = TIME_MAX
    ) -> list[ReceivedMessage]:
        """The newest messages with a key, oldest first; an id that a producer gave is one too.

        Args:
          count: at most so many of each broker; brokers give 64 at most by default.
          begin_ms, end_ms: stored between these, ms since 1970.

        Raises: RouteNotFoundError: there is no such topic. BrokersError; ServerError; ConnectError.
        """
        return self._call(
            self._inner.messages_by_key, topic, key, count=count, begin_ms=begin_ms, end_ms=end_ms
        )

    def messages_by_time(
        self, topic: str, begin_ms: int, end_ms: int = TIME_MAX, *, count: int = COUNT
    ) -> list[ReceivedMessage]:
        """The first messages stored in a span of time, oldest first.

        Args:
          begin_ms, end_ms: both included, ms since 1970 by the brokers' clocks.
          count: at most so many.

        Raises: RouteNotFoundError: there is no such topic. BrokersError; ServerError; ConnectError.
        """
        return self._call(self._inner.messages_by_time, topic, begin_ms, end_ms, count=count)

    def dead_letters(
        self, group: str, begin_ms: int = 0, end_ms: int = TIME_MAX, *, count: int = COUNT
    ) -> list[ReceivedMessage]:
        """What a group gave up; as `messages_by_time`. None if it never gave up anything."""
        return self._call(self._inner.dead_letters, group, begin_ms, end_ms, count=count)

    # Brokers

    def cluster(self) -> ClusterView:
        """All brokers of all clusters.

        Raises: ServerError; ConnectError: no name server answers.
        """
        return self._call(
            self._inner.cluster,
        )

    def broker_runtime_info(self, broker: str) -> dict[str, str]:
        """How a broker is: RocketMQ's names and texts, such as "putTps" and "bootTimestamp".

        Raises: NotFoundError: no broker is called so. ServerError; ConnectError.
        """
        return self._call(self._inner.broker_runtime_info, broker)

    def broker_config(self, broker: str) -> dict[str, str]:
        """A broker's settings, by the keys of broker.conf.

        Raises: NotFoundError: no broker is called so. ServerError; ConnectError.
        """
        return self._call(self._inner.broker_config, broker)

    def update_broker_config(self, broker: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker, which writes them to its broker.conf.

        Apache's brokers ignore a key that they do not know, and some need a restart.

        Args:
          settings: keys of broker.conf to values.

        Raises: NotFoundError: no broker is called so. ConfigurationError: no settings, or a key
          that cannot be one. ServerError; ConnectError.
        """
        self._call(self._inner.update_broker_config, broker, settings)

    # Class filters

    def put_filter_class(
        self, group: str, topic: str, filter_class: FilterClass
    ) -> tuple[str, ...]:
        """Give a class to every filter server of a topic, for a group that does not upload itself.

        It replaces the one that the group has for the topic. Filter servers keep it as long as
        they run: one that starts later has to be given it anew.

        Args:
          filter_class: with its source.

        Returns: `host:port` of the filter servers, sorted.
        Raises: ConfigurationError: no source, or one that no filter server would take.
          NotFoundError: the topic has no filter server. RouteNotFoundError: there is no such topic.
          ServerError: the filter server refuses it, or cannot compile it; BrokersError: some do,
          and `partial` has the others. ConnectError.
        """
        return self._call(self._inner.put_filter_class, group, topic, filter_class)

    def filter_classes(self, topic: str | None = None) -> list[FilterClassInfo]:
        """The classes that filter servers have, sorted by filter server, topic and group.

        Args:
          topic: of this one, at its filter servers; None: of all, at the filter servers of all
            brokers.

        Raises: NotFoundError: there is no filter server. RouteNotFoundError: there is no such
          topic. BrokersError; ServerError: also from Apache's filter servers; ConnectError.
        """
        return self._call(self._inner.filter_classes, topic)

    def remove_filter_class(self, group: str, topic: str) -> tuple[str, ...]:
        """Have every filter server of a topic forget the class of a group.

        Its consumers get nothing then, until it is put or uploaded again.

        Returns: `host:port` of the filter servers, sorted.
        Raises: NotFoundError: the topic has no filter server. RouteNotFoundError: there is no such
          topic. ServerError: the filter server has no such class; BrokersError: some have not, and
          `partial` has the others. ConnectError.
        """
        return self._call(self._inner.remove_filter_class, group, topic)
