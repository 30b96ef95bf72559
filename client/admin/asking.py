"""Asking several brokers at once, and telling which of them did not answer.

A verb that asks several brokers gives everything or raises: what the others answered is in the
error's `partial`, so that a part is not taken for the whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import anyio
import msgspec

from ...remoting.bodies import BrokerData, ClusterInfo, MessageQueue, TopicRouteData
from ...remoting.request_codes import RequestCode
from ...remoting.route_queues import QUEUES_COUNT_MAX
from ..connection.client import Client, reading_answer
from ..errors import (
    BadAnswerError,
    ClientError,
    ConfigurationError,
    ConnectError,
    RequestTimeoutError,
    copy_of,
)
from .results import BrokerInfo

REQUESTS_MAX: Final = 64
"""Requests under way at one time."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class NotFoundError(ClientError):
    """What was asked for is not there: a message, a consumer group, a client."""


class BrokerFailure(msgspec.Struct, frozen=True):
    """Why a broker gave no answer."""

    broker_name: str
    error: ClientError


class BrokersError(ClientError):
    """Some of the brokers that were asked failed; the others succeeded.

    Args:
      what: what was asked of them.
      failures: who failed and why; the first one's error is the cause too.
      asked_count: how many brokers were asked.
      partial: what the verb would have returned, made of the others' answers.
      who: what they are; filter servers count as brokers, too.
    """

    def __init__(
        self,
        what: str,
        failures: Iterable[BrokerFailure],
        asked_count: int,
        partial: Any,
        who: str = "brokers",
    ) -> None:
        self.failures: tuple[BrokerFailure, ...] = tuple(failures)
        self.partial = partial
        each = "; ".join(f"{failure.broker_name}: {failure.error}" for failure in self.failures)
        super().__init__(f"{what}: {len(self.failures)} of {asked_count} {who} failed: {each}")


class Answers(Generic[K, T]):
    """What came back, by broker name or queue.

    Attributes:
      values: of those that answered.
      errors: of those that failed.
    """

    def __init__(self) -> None:
        self.values: dict[K, T] = {}
        self.errors: dict[K, ClientError] = {}

    def check(self, what: str, partial: Any, who: str = "brokers") -> None:
        """Go on only if everybody answered.

        Args:
          what: was asked, for the error's text.
          partial, who: see BrokersError.

        Raises: BrokersError; the broker's own error if only one broker was asked.
        """
        if not self.errors:
            return
        failures: dict[str, ClientError] = {}
        for key, error in self.errors.items():
            failures.setdefault(_broker_name(key), error)
        asked = {_broker_name(key) for key in (*self.values, *self.errors)}
        first = next(iter(failures.values()))
        if len(asked) == 1:
            raise first
        found = [BrokerFailure(name, error) for name, error in failures.items()]
        raise BrokersError(what, found, len(asked), partial, who) from first


def _broker_name(key: Hashable) -> str:
    return key.broker_name if isinstance(key, MessageQueue) else str(key)


async def ask_all(calls: Mapping[K, Callable[[], Awaitable[T]]]) -> Answers[K, T]:
    """Make calls at the same time, at most REQUESTS_MAX; errors of the client are collected.

    A broker that gives no answer for one of its queues is not asked for more of them.

    Returns: answers in the order of the calls.
    """
    answers: Answers[K, T] = Answers()
    limiter = anyio.CapacityLimiter(REQUESTS_MAX)
    values: dict[K, T] = {}
    errors: dict[K, ClientError] = {}

    silent: dict[str, ClientError] = {}

    async def ask(key: K, call: Callable[[], Awaitable[T]]) -> None:
        async with limiter:
            broker = key.broker_name if isinstance(key, MessageQueue) else ""
            if broker in silent:
                errors[key] = copy_of(silent[broker])
                return
            try:
                values[key] = await call()
            except ClientError as error:
                errors[key] = error
                if broker and is_silence(error):
                    silent[broker] = error

    async with anyio.create_task_group() as group:
        for key, call in calls.items():
            group.start_soon(ask, key, call)
    for key in calls:
        if key in values:
            answers.values[key] = values[key]
        else:
            answers.errors[key] = errors[key]
    return answers


async def first_of(
    calls: Mapping[K, Callable[[], Awaitable[T]]], is_wanted: Callable[[T], bool]
) -> tuple[K | None, Answers[K, T]]:
    """Make calls at the same time until one gives what is wanted; the others are given up then.

    Returns: the first call with a wanted answer, or None, and all answers so far.
    """
    found: list[K] = []
    answers: Answers[K, T] = Answers()
    limiter = anyio.CapacityLimiter(REQUESTS_MAX)

    async def ask(key: K, call: Callable[[], Awaitable[T]]) -> None:
        async with limiter:
            try:
                value = answers.values[key] = await call()
            except ClientError as error:
                answers.errors[key] = error
                return
        if is_wanted(value):
            found.append(key)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for key, call in calls.items():
            group.start_soon(ask, key, call)
    return (found[0] if found else None), answers


class BrokerAt(NamedTuple):
    """One broker.

    Attributes:
      name: the name that it shares with its slaves; its address if it was named by that.
      broker_id: 0: the master; -1: it was named by its address.
      address: `host:port`.
    """

    name: str
    broker_id: int
    address: str


class Brokers:
    """The brokers that a client reaches, and the names by which they know its topics and groups.

    Args:
      client: open.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def client(self) -> Client:
        """The client: its own, or the shared one."""
        return self._client

    def full(self, name: str) -> str:
        """A topic or group as brokers know it."""
        return self._client.with_namespace(name)

    def short(self, name: str) -> str:
        """A topic or group as the program knows it."""
        return self._client.without_namespace(name)

    def is_ours(self, full: str) -> bool:
        """Whether a topic or group is in the client's namespace; without one, all are."""
        return not self._client.namespace or self.short(full) != full

    async def find(self, cluster: str | None = None) -> list[BrokerInfo]:
        """All brokers, or those of a cluster, sorted.

        Raises: ConfigurationError: there is no such cluster; ClientError: no name server answers.
        """
        brokers, _ = await self.find_with_warning()
        if cluster is None:
            return brokers
        found = [broker for broker in brokers if broker.cluster == cluster]
        if not found:
            names = ", ".join(sorted({broker.cluster for broker in brokers})) or "none"
            raise ConfigurationError(f"there is no cluster {cluster!r}; there are: {names}")
        return found

    async def one(self, broker: str) -> BrokerAt:
        """The broker of a name (its master, or another where that is not up) or of a `host:port`.

        Raises: NotFoundError: no broker is called so. ServerError; ConnectError.
        """
        if ":" in broker:
            return BrokerAt(broker, -1, broker)
        brokers = await self.find()
        for each in each_of(brokers):
            if broker == each.name:
                return each
        names = ", ".join(each.name for each in brokers) or "none"
        raise NotFoundError(f"no broker is called {broker!r}; there are: {names}")

    async def find_with_warning(self) -> tuple[list[BrokerInfo], str]:
        """All brokers, sorted, and the name server's warning about them, or "".

        Raises: ClientError: no name server answers.
        """
        answer = await self._client.request_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        with reading_answer(";".join(self._client.url.name_servers)):
            info = ClusterInfo.from_body(answer.body)
        brokers = [_broker_info(data) for data in info.broker_addr_table.values()]
        brokers.sort(key=lambda broker: (broker.cluster, broker.name))
        return brokers, answer.remark or ""

    async def find_to_change(self, cluster: str | None) -> list[BrokerInfo]:
        """The brokers to make a topic or group on.

        Raises: ConfigurationError: there are several clusters, and none was named, or no broker.
        """
        window = self._client.window(self._client.timeout_s)
        while not (await self.find()) and await window.pause():
            pass  # the name server has just started, and its brokers will register
        brokers = await self.find(cluster)
        clusters = sorted({broker.cluster for broker in brokers})
        if len(clusters) > 1:
            raise ConfigurationError(f"which cluster? There are several: {', '.join(clusters)}")
        if not brokers:
            raise ConfigurationError("the name server knows no broker")
        return brokers

    async def route(self, full_topic: str) -> TopicRouteData:
        """Where a topic is, asked anew. Raises: RouteNotFoundError; ConnectError."""
        return await self._client.route(full_topic, is_fresh=True)

    async def ask(
        self,
        brokers: Iterable[BrokerInfo],
        ask: Callable[[BrokerInfo, str], Awaitable[T]],
        *,
        is_change: bool = False,
    ) -> Answers[str, T]:
        """Ask one broker of each name: the master, or another where it has none.

        Args:
          ask: is given the broker and its address.
          is_change: only a master will do.
        """

        async def ask_one(broker: BrokerInfo) -> T:
            address = broker.addresses.get(0) if is_change else broker.address
            if address is None:
                raise ConnectError(broker.name, "this broker has no master that is up")
            return await ask(broker, address)

        def call(broker: BrokerInfo) -> Callable[[], Awaitable[T]]:
            return lambda: ask_one(broker)

        return await ask_all({broker.name: call(broker) for broker in brokers})

    async def ask_chosen(
        self,
        broker: str | None,
        cluster: str | None,
        ask: Callable[[BrokerAt], Awaitable[T]],
    ) -> Answers[str, T]:
        """Ask one broker as `one`, or the masters of a cluster, or of all clusters.

        Returns: answers as `ask_each`; a name without a master that is up is one of the errors.
        Raises: ConfigurationError: both are given, or there is no such cluster. As `one`.
        """
        if broker is not None and cluster is not None:
            raise ConfigurationError("give a broker or a cluster, not both")
        if broker is not None:
            return await ask_each([await self.one(broker)], ask)

        async def ask_master(master: BrokerInfo, address: str) -> T:
            return await ask(BrokerAt(master.name, 0, address))

        return await self.ask(await self.find(cluster), ask_master, is_change=True)


def answering(brokers: Iterable[BrokerInfo], errors: Mapping[str, ClientError]) -> list[BrokerInfo]:
    """The brokers without the silent ones: one that hangs costs a verb its time once.

    Args:
      errors: of the brokers that failed before, by name.
    """
    silent = {name for name, error in errors.items() if is_silence(error)}
    return [broker for broker in brokers if broker.name not in silent]


def is_silence(error: ClientError) -> bool:
    """Whether a server gave no answer, so that it need not be asked for more now."""
    return isinstance(error, ConnectError | RequestTimeoutError)


def each_of(brokers: Iterable[BrokerInfo]) -> list[BrokerAt]:
    """Masters and slaves one by one, in the order of the names, then of the ids."""
    return [
        BrokerAt(broker.name, broker_id, broker.addresses[broker_id])
        for broker in brokers
        for broker_id in sorted(broker.addresses)
    ]


async def ask_each(
    brokers: Iterable[BrokerAt], ask: Callable[[BrokerAt], Awaitable[T]]
) -> Answers[str, T]:
    """Ask brokers one by one chosen, at the same time.

    Returns: answers by `name` of a master, and `name/id` of a slave.
    """

    def call(broker: BrokerAt) -> Callable[[], Awaitable[T]]:
        return lambda: ask(broker)

    return await ask_all({label(broker): call(broker) for broker in brokers})


def label(broker: BrokerAt) -> str:
    """A broker for people: its name, with its id if it is a slave."""
    return broker.name if broker.broker_id <= 0 else f"{broker.name}/{broker.broker_id}"


def brokers_of(route: TopicRouteData) -> list[BrokerInfo]:
    """The brokers of a route, sorted by name."""
    found = {data.broker_name: _broker_info(data) for data in reversed(route.broker_datas)}
    return [found[name] for name in sorted(found)]


def queues_of(
    topic: str, route: TopicRouteData, *, is_writable_too: bool = False
) -> list[MessageQueue]:
    """The queues that can be read, whatever the permissions say, sorted.

    Args:
      is_writable_too: those that can only be written, too.

    Raises: BadAnswerError: more than QUEUES_COUNT_MAX.
    """
    queues: set[MessageQueue] = set()
    for data in route.queue_datas:
        count = data.read_queue_nums
        if is_writable_too:
            count = max(count, data.write_queue_nums)
        if len(queues) + count > QUEUES_COUNT_MAX:
            raise BadAnswerError("", f"a route with more than {QUEUES_COUNT_MAX} queues")
        queues.update(MessageQueue(topic, data.broker_name, queue_id) for queue_id in range(count))
    return sorted(queues)


def _broker_info(data: BrokerData) -> BrokerInfo:
    return BrokerInfo(data.broker_name, data.cluster, dict(sorted(data.broker_addrs.items())))
