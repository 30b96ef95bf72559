"""Upkeep of a cluster: cleaning, write permissions, and values that name servers keep.

Java counterpart: cleanExpiredCQ, cleanUnusedTopic, deleteExpiredCommitLog, wipeWritePerm,
addWritePerm, updateTopicPerm, updateKvConfig, deleteKvConfig and updateOrderConf of mqadmin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from ...common.topic_names import AUTO_CREATE_TOPIC
from ...remoting.bodies import PERM_READ, PERM_WRITE, KVTable
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError
from ...remoting.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    CreateTopicRequestHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
    decode,
)
from ...remoting.headers.base import Header
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..connection.client import reading_answer
from ..core.topics import check_topic
from ..errors import ConfigurationError
from ..sending.producer import configured
from .asking import Answers, BrokerAt, Brokers, NotFoundError, ask_all, brokers_of, label
from .results import BrokerInfo
from .topics import TopicVerbs

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The name servers' namespace of ordered topics. Source: NamesrvUtil."""
PERMS: Final = frozenset({PERM_READ, PERM_WRITE, PERM_READ | PERM_WRITE})

T = TypeVar("T")


class UpkeepVerbs:
    """The part of `Admin` about cleaning, permissions, and the name servers' tables."""

    def __init__(self, brokers: Brokers, topics: TopicVerbs) -> None:
        self._brokers = brokers
        self._client = brokers.client
        self._topics = topics

    # Cleaning

    async def clean_expired_consume_queues(
        self, broker: str | None = None, *, cluster: str | None = None
    ) -> list[str]:
        """Have brokers delete the parts of consume queues whose messages are gone.

        Args:
          broker: a name (of its master then) or `host:port`; None: all masters.
          cluster: all masters of this cluster.

        Returns: the brokers that did it.
        Raises: ConfigurationError: there is no such cluster. NotFoundError: no broker is called so.
          BrokersError: `partial` has those that did it. ServerError; ConnectError.
        """
        return await self._clean(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster)

    async def clean_unused_topics(
        self, broker: str | None = None, *, cluster: str | None = None
    ) -> list[str]:
        """Have brokers delete the consume queues of topics that they no longer have.

        Args, Returns, Raises: as `clean_expired_consume_queues`.
        """
        return await self._clean(RequestCode.CLEAN_UNUSED_TOPIC, broker, cluster)

    async def delete_expired_commit_log(
        self, broker: str | None = None, *, cluster: str | None = None
    ) -> list[str]:
        """Have brokers delete log files that are older than `fileReservedTime`, at once.

        Args, Returns, Raises: as `clean_expired_consume_queues`.
        """
        return await self._clean(RequestCode.DELETE_EXPIRED_COMMITLOG, broker, cluster)

    async def _clean(self, code: RequestCode, broker: str | None, cluster: str | None) -> list[str]:
        async def ask(at: BrokerAt) -> str:
            await self._client.request(at.address, code)
            return label(at)

        answers = await self._brokers.ask_chosen(broker, cluster, ask)
        done = list(answers.values.values())
        answers.check("cleaning", done)
        if not done:
            raise NotFoundError("the name server knows no broker")
        return done

    # Permissions

    async def wipe_write_perm(self, broker: str) -> dict[str, int]:
        """Have the name servers take the permission to write off all topics of a broker.

        Producers turn to other brokers with their next route, consumers go on: for a broker that
        shall go. Name servers forget it when the broker registers its topics anew with another
        version, such as after a topic is created; they do not tell the broker.

        Args:
          broker: its name.

        Returns: name server to how many topics were changed.
        Raises: NotFoundError: no broker is called so. BrokersError: `partial` has the name servers
          that did it. ServerError; ConnectError.
        """
        await self._check_name(broker)
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker)

        def count(answer: RemotingCommand) -> int:
            return decode(WipeWritePermOfBrokerResponseHeader, answer.ext_fields).wipe_topic_count

        code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        return await self._at_name_servers("wiping the write permission", code, header, count)

    async def add_write_perm(self, broker: str) -> dict[str, int]:
        """Have the name servers give the permission to write back to all topics of a broker.

        Args, Returns, Raises: as `wipe_write_perm`.
        """
        await self._check_name(broker)
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker)

        def count(answer: RemotingCommand) -> int:
            return decode(AddWritePermOfBrokerResponseHeader, answer.ext_fields).add_topic_count

        code = RequestCode.ADD_WRITE_PERM_OF_BROKER
        return await self._at_name_servers("adding the write permission", code, header, count)

    async def _check_name(self, broker: str) -> None:
        brokers = await self._brokers.find()
        if broker not in {each.name for each in brokers}:
            names = ", ".join(each.name for each in brokers) or "none"
            raise NotFoundError(f"no broker is called {broker!r}; there are: {names}")

    async def update_topic_perm(
        self, topic: str, perm: int, *, broker: str | None = None
    ) -> list[str]:
        """Change what may be done with a topic; its other settings stay as they are.

        Args:
          perm: bits 4 read, 2 write: 2, 4 or 6.
          broker: its name; None: on all brokers of the topic.

        Returns: the brokers that did it.
        Raises: ConfigurationError: another permission, or the topic is not on this broker.
          RouteNotFoundError: there is no such topic. BrokersError: `partial` has those that did it.
          ServerError; ConnectError.
        """
        if perm not in PERMS:
            raise ConfigurationError(f"a permission is 2 (write), 4 (read) or 6 (both), not {perm}")
        full = self._brokers.full(configured(check_topic, topic))
        brokers = brokers_of(await self._brokers.route(full))
        if broker is not None:
            names = ", ".join(each.name for each in brokers)
            brokers = [each for each in brokers if each.name == broker]
            if not brokers:
                raise ConfigurationError(f"the topic {topic} is not on {broker!r}, but on: {names}")

        async def ask(_: BrokerInfo, address: str) -> None:
            config = await self._topics.topic_config(address, full)
            header = CreateTopicRequestHeader(
                topic=full,
                default_topic=AUTO_CREATE_TOPIC,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=perm,
                topic_filter_type=config.topic_filter_type,
                topic_sys_flag=config.topic_sys_flag,
                order=config.order,
            )
            await self._client.request(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

        answers = await self._brokers.ask(brokers, ask, is_change=True)
        self._client.forget_route(full)
        answers.check(f"changing the permission of topic {topic}", list(answers.values))
        return list(answers.values)

    # What name servers keep

    async def kv_configs(self, namespace: str) -> dict[str, str]:
        """All that the name servers keep in a namespace (not the client's): key to value.

        Returns: empty: there is no such namespace, or nothing in it.
        Raises: ServerError; ConnectError: no name server answers.
        """
        _check_named(namespace=namespace)
        answer = await self._client.request_name_server(
            RequestCode.GET_KVLIST_BY_NAMESPACE,
            GetKVListByNamespaceRequestHeader(namespace=namespace),
            ok=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return {}
        with reading_answer(";".join(self._client.url.name_servers)):
            table = KVTable.from_body(answer.body).table
        return dict(sorted(table.items()))

    async def kv_config(self, namespace: str, key: str) -> str | None:
        """What the name servers keep under a key of a namespace; None: nothing.

        Raises: ServerError; ConnectError: no name server answers.
        """
        _check_named(namespace=namespace, key=key)
        answer = await self._client.request_name_server(
            RequestCode.GET_KV_CONFIG,
            GetKVConfigRequestHeader(namespace=namespace, key=key),
            ok=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        with reading_answer(";".join(self._client.url.name_servers)):
            return decode(GetKVConfigResponseHeader, answer.ext_fields).value

    async def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Keep a value at every name server.

        Raises: ConfigurationError: the namespace or the key is empty. BrokersError: some name
          servers failed. ServerError; ConnectError.
        """
        _check_named(namespace=namespace, key=key)
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        await self._at_name_servers(f"keeping {key}", RequestCode.PUT_KV_CONFIG, header, _nothing)

    async def delete_kv_config(self, namespace: str, key: str) -> None:
        """Delete a value at every name server; one that is not there is no error.

        Raises: as `put_kv_config`.
        """
        _check_named(namespace=namespace, key=key)
        header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
        code = RequestCode.DELETE_KV_CONFIG
        await self._at_name_servers(f"deleting {key}", code, header, _nothing)

    async def order_conf(self, topic: str) -> dict[str, int] | None:
        """How many queues an ordered topic has on each broker, by name; None: nothing is kept.

        Raises: BadAnswerError: another program kept something else. ServerError; ConnectError.
        """
        text = await self.kv_config(
            ORDER_TOPIC_CONFIG, self._brokers.full(configured(check_topic, topic))
        )
        if text is None:
            return None
        with reading_answer(";".join(self._client.url.name_servers)):
            return _queues_by_broker(text)

    async def put_order_conf(self, topic: str, queues: Mapping[str, int]) -> None:
        """Fix the queues of an ordered topic: producers use these even while a broker is down.

        Args:
          queues: broker name to number of queues.

        Raises: ConfigurationError: no broker, an illegal name or number. As `put_kv_config`.
        """
        full = self._brokers.full(configured(check_topic, topic))
        if not queues:
            raise ConfigurationError("an ordered topic needs a broker and its number of queues")
        for name, count in queues.items():
            if not name or set(name) & set(":;") or count < 1:
                raise ConfigurationError(f"{name}:{count} is not a broker and its number of queues")
        text = ";".join(f"{name}:{count}" for name, count in queues.items())
        await self.put_kv_config(ORDER_TOPIC_CONFIG, full, text)

    async def delete_order_conf(self, topic: str) -> None:
        """Forget what is kept about an ordered topic. Raises: as `put_kv_config`."""
        full = self._brokers.full(configured(check_topic, topic))
        await self.delete_kv_config(ORDER_TOPIC_CONFIG, full)

    async def _at_name_servers(
        self,
        what: str,
        code: RequestCode,
        header: Header,
        read: Callable[[RemotingCommand], T],
    ) -> dict[str, T]:
        """Ask every name server: they do not tell each other."""

        def call(address: str) -> Callable[[], Awaitable[T]]:
            async def ask() -> T:
                answer = await self._client.request(address, code, header)
                with reading_answer(address):
                    return read(answer)

            return ask

        servers = self._client.url.name_servers
        answers: Answers[str, T] = await ask_all({each: call(each) for each in servers})
        answers.check(what, answers.values, "name servers")
        return answers.values


def _check_named(**names: str) -> None:
    for what, name in names.items():
        if not name:
            raise ConfigurationError(f"the {what} of a value is empty")


def _nothing(_: RemotingCommand) -> None:
    return None


def _queues_by_broker(text: str) -> dict[str, int]:
    """Read `broker-a:4;broker-b:4`. Raises: RemoteProtocolError: it is of another form."""
    found = {}
    for each in filter(None, text.split(";")):
        name, separator, count = each.rpartition(":")
        if not separator or not (count.isascii() and count.isdecimal() and len(count) < 10):
            raise RemoteProtocolError(f"not the queues of an ordered topic: {text[:64]!r}")
        found[name] = int(count)
    return found
