"""The cluster behind a source or a sink: its queues, their offsets, and pulls.

It uses the blocking client. It never joins a group, not even by heartbeats: the group's consumers
would leave a share of their queues to a Spark query that consumes none.

Spark reuses its worker processes for many tasks, so each process keeps its connections.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Iterable
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeVar

from ..blocking import Admin, Client
from ..client.core import queue_requests as requests
from ..client.core.queue_requests import PullAnswer, QueueRequest
from ..client.core.routes import subscribe_queues
from ..client.core.subscription import build_subscription
from ..client.errors import (
    ConfigurationError,
    ConnectError,
    RouteNotFoundError,
    reading_answer,
)
from ..common.topic_names import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, is_system_topic
from ..remoting.bodies import MessageQueue, SubscriptionData, TopicRouteData
from ..remoting.response_codes import ResponseCode
from ..remoting.signature import Credentials
from ..remoting.tls_options import TlsSettings
from .errors import OptionError, QueueGoneError, SparkConnectorError
from .missing_queues import Missing, why_missing
from .queue_offsets import Queue
from .record_columns import RecordColumns, walk
from .source_options import ConnectionOptions, ReadFrom, SourceOptions, read_assignment
from .time_search import first_new
from .tries import PASSING, again

# Credentials from a file, so that neither a job's code nor Spark's plans contain them.
#
# The file is that of RocketMQ's tools (`conf/tools.yml`) with lines of `accessKey: ...`; lines of
# `accessKey=...` work, too. Every machine that runs tasks needs it.

_LINE: Final = re.compile(r"\s*(accessKey|secretKey|securityToken)\s*[:=]\s*(.*?)\s*")


def read_secrets(path: str) -> Credentials:
    """Read the credentials in a file.

    Raises:
      OptionError: it cannot be read, or a key is missing. The message shows nothing of its content.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionError(
            f"secretsFile {path} cannot be read on this machine: {reason}; copy it to every"
            " machine that runs tasks"
        ) from None
    found = {match[1]: match[2].strip("'\"") for line in lines if (match := _LINE.fullmatch(line))}
    for name in ("accessKey", "secretKey"):
        if not found.get(name):
            raise OptionError(f"secretsFile {path} has no line `{name}: ...`")
    return Credentials(found["accessKey"], found["secretKey"], found.get("securityToken") or None)


logger = logging.getLogger(__name__)

T = TypeVar("T")

_PULL_NOTHING: Final = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)
SAMPLE_COUNT: Final = 32
"""Messages per pull that measures sizes: Apache's brokers return at most this number."""

ADDRESS_KEPT_S: Final = 5.0
"""How long a broker's address is cached: asking the client costs a switch of threads, half of the
work of a pull. The client refreshes routes less often."""

_clients: dict[tuple[int, ConnectionOptions], Client] = {}
_lock = threading.Lock()


class Cluster:
    """Name servers and their brokers.

    Safe to use from many threads. It is not closed: its connections belong to the process.

    Args:
      options: addresses, credentials and the group to pull as.

    Raises:
      OptionError: the client refuses the options.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._read_from = options.read_from
        self._suggested: dict[str, int] = {}
        self._options = options.connection
        self._group = options.consumer_group
        self._client = client_of(self._options)
        # The address of each broker, and when it expires.
        self._addresses: dict[str, tuple[str, float]] = {}

    # Queues

    def queues(self, options: SourceOptions, *, is_strict: bool = True) -> list[Queue]:
        """The queues that a source reads, sorted.

        Args:
          is_strict: a named topic or queue must exist, and is waited for; else it is left out.

        Raises:
          OptionError: a named topic or queue does not exist, or cannot be read.
          ClientError: no name server answers.
        """
        is_strict = is_strict and bool(options.topic_names)
        found: list[Queue] = []
        for topic in options.topic_names or self._matching(options.topic_pattern):
            # A topic that a pattern matches may be deleted after the topics were listed.
            route = self._named_route(topic) if is_strict else self._route_now(topic)
            mine = [] if route is None else self._readable(topic, route)
            if is_strict and not mine:
                raise OptionError(
                    f"topic {topic} has no queue to read: its perm forbids it on all brokers; 6"
                    " allows reading and writing"
                )
            found += mine
        found.sort()
        if not options.assign:
            return found
        wanted = [
            Queue(topic, broker_name, queue_id)
            for topic, brokers in read_assignment(options.assign).items()
            for broker_name, ids in brokers.items()
            for queue_id in ids
        ]
        missing = [queue for queue in wanted if queue not in found]
        if missing and is_strict:
            raise OptionError(f"assign names a queue that does not exist: {missing[0]}")
        return sorted(set(wanted) & set(found))

    def missing(self, queues: Iterable[Queue]) -> dict[Queue, Missing | None]:
        """Why queues are not among those of `queues`; None: it is there again.

        A topic that no name server knows is waited for only while a broker of it is away: brokers
        register all of their topics at once.

        Raises: ClientError: no name server answers.
        """
        found: dict[Queue, Missing | None] = {}
        with Admin(self._client) as admin:
            running = {broker.name for broker in again(self._options, admin.cluster).brokers}
        for topic, several in groupby(sorted(queues), key=attrgetter("topic")):
            mine = list(several)
            is_awaited = not running.issuperset(queue.broker_name for queue in mine)
            readable: list[Queue] = []
            holders: set[str] = set()
            route = self._route_now(topic)
            if route is None and is_awaited:
                with contextlib.suppress(RouteNotFoundError):
                    route = self._route(topic)
            if route is not None:
                readable = self._readable(topic, route)
                # A static topic's queues have names of brokers that do not exist.
                holders = {data.broker_name for data in route.queue_datas}
                holders |= {each.broker_name for each in readable}
            for queue in mine:
                found[queue] = why_missing(queue, readable, holders, running)
        return found

    def topics(self) -> list[str]:
        """All topics of a name server, system topics included.

        Raises: ClientError: no name server answers.
        """
        with Admin(self._client) as admin:
            return again(self._options, partial(admin.topics, is_all=True))

    def _matching(self, pattern: str) -> list[str]:
        special = (RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX)
        return [
            name
            for name in self.topics()
            if re.fullmatch(pattern, name)
            # Retry and DLQ topics only if the pattern itself has a "%".
            and (not name.startswith(special) or "%" in pattern)
            and (not is_system_topic(name) or name == pattern)
        ]

    def _named_route(self, topic: str) -> TopicRouteData:
        """The route of a topic that the user named. Raises: OptionError: the topic has none."""
        try:
            return self._route(topic)
        except RouteNotFoundError as error:
            raise OptionError(
                f"no name server of {self._options.name_server} knows the topic {topic}: {error}"
            ) from error

    def _route(self, topic: str) -> TopicRouteData:
        """A topic's route. Raises: RouteNotFoundError: no name server knows it; ClientError."""
        full = self._client.with_namespace(topic)
        return again(self._options, partial(self._client.route, full, is_fresh=True))

    def _route_now(self, topic: str) -> TopicRouteData | None:
        """A topic's route; None: no name server knows it now. Raises: ClientError."""
        full = self._client.with_namespace(topic)

        def ask() -> TopicRouteData | None:
            try:
                return self._client.route(full, is_fresh=True)
            except RouteNotFoundError:
                return None

        return again(self._options, ask)

    def _readable(self, topic: str, route: TopicRouteData) -> list[Queue]:
        full = self._client.with_namespace(topic)
        return [
            Queue(topic, queue.broker_name, queue.queue_id)
            for queue in subscribe_queues(full, route)
        ]

    # Offsets

    def min_offset(self, queue: Queue) -> int:
        """The offset of the oldest message. Raises: ClientError: the broker failed."""
        return self._ask(queue, requests.min_offset(self._full(queue)))

    def max_offset(self, queue: Queue) -> int:
        """The offset that the next message will get. Raises: ClientError: the broker failed."""
        return self._ask(queue, requests.max_offset(self._full(queue)))

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """The offset of the first message stored then or later; the queue's end if there is none.

        Raises:
          SparkConnectorError: the broker's answer to a pull holds no message.
          ClientError: the broker failed.
        """
        guess = self._ask(queue, requests.search_offset(self._full(queue), timestamp_ms))
        low, high = self.min_offset(queue), self.max_offset(queue)
        return first_new(guess, low, high, partial(self._is_new, queue, timestamp_ms))

    def _is_new(self, queue: Queue, timestamp_ms: int, offset: int) -> bool:
        """Whether the first message from an offset on was stored then or later, or is missing."""
        subscription = build_subscription(queue.topic, "*")
        while True:
            answer = self.pull(queue, offset, count=1, group=self._group, subscription=subscription)
            if answer.code == ResponseCode.SUCCESS:
                starts, _ = walk(answer.body, 0, len(answer.body))
                if not len(starts):
                    raise SparkConnectorError(
                        f"{queue}: the answer to a pull at {offset} holds no message"
                    )
                times = RecordColumns(answer.body, starts).field("store_timestamp_ms")
                return bool(times[0] >= timestamp_ms)
            if answer.next_offset <= offset:
                return True
            offset = answer.next_offset

    def committed_offset(self, queue: Queue, group: str) -> int | None:
        """A group's committed offset; None: it never committed. Raises: ClientError."""
        full_group = self._client.with_namespace(group)
        request = requests.committed_offset(
            self._full(queue), full_group, set_zero_if_not_found=False
        )
        return self._ask(queue, request)

    def commit_offset(self, queue: Queue, group: str, offset: int) -> None:
        """Commit an offset of a group. Raises: ClientError: the broker failed."""
        full_group = self._client.with_namespace(group)
        self._ask(queue, requests.commit_offset(self._full(queue), full_group, offset))

    # Messages

    def pull(
        self,
        queue: Queue,
        offset: int,
        *,
        count: int,
        size: int | None = None,
        group: str,
        subscription: SubscriptionData,
    ) -> PullAnswer:
        """Pull once, without long polling.

        Args:
          size: bytes of the answer at most, for brokers of 5.x; None: the broker's default.

        Raises: ClientError: the broker failed.
        """
        request = requests.pull(
            self._full(queue),
            subscription,
            self._client.with_namespace(group),
            offset,
            count=count,
            size=size,
            is_subscription_sent=True,
        )
        answer = self._of_slave(queue, request)
        if answer is None:
            answer = self._ask(queue, request)
        self._suggested[queue.broker_name] = answer.suggested_broker_id
        return answer

    def mean_size(self, queue: Queue, offset: int, group: str) -> float | None:
        """The average size of the next messages of a queue in bytes; None if there are none.

        Raises: ClientError: the broker failed.
        """
        every = build_subscription(queue.topic, "*")
        body = self.pull(queue, offset, count=SAMPLE_COUNT, group=group, subscription=every).body
        starts, _ = walk(body, 0, len(body))
        return len(body) / len(starts) if len(starts) else None

    # Requests

    def _of_slave(self, queue: Queue, request: QueueRequest[PullAnswer]) -> PullAnswer | None:
        """The answer of a slave; None: ask the master.

        A slave may not have a message yet, so only the master's answer shows that it is lost.
        """
        address = self._slave(queue)
        if address is None:
            return None
        try:
            answer = self._request(address, request)
        except PASSING as error:
            logger.warning("%s; pulling from its master instead", error)
            return None
        return None if answer.code in _PULL_NOTHING else answer

    def _slave(self, queue: Queue) -> str | None:
        """The address of the slave to pull from; None: pull from the master."""
        if self._read_from is ReadFrom.MASTER:
            return None
        self._address(queue)  # the client looks up the route
        known = self._client.broker_addresses().get(queue.broker_name, {})
        wanted = self._suggested.get(queue.broker_name, 0)
        if self._read_from is ReadFrom.SLAVE:
            wanted = min((broker_id for broker_id in known if broker_id), default=0)
        return known.get(wanted) if wanted else None

    def _full(self, queue: Queue) -> MessageQueue:
        """The queue with its topic's namespace."""
        topic = self._client.with_namespace(queue.topic)
        return MessageQueue(topic, queue.broker_name, queue.queue_id)

    def _ask(self, queue: Queue, request: QueueRequest[T]) -> T:
        def once() -> T:
            address = self._address(queue)
            try:
                return self._request(address, request)
            except RouteNotFoundError as error:  # the broker itself has no such topic
                offset = getattr(request.header, "queue_offset", None)
                where = queue if offset is None else f"{queue}, offset {offset}"
                raise QueueGoneError(
                    f"{where}: the topic was deleted, or its broker no longer has it: {error}"
                ) from error
            except PASSING:
                self._addresses.clear()
                raise

        return again(self._options, once)

    def _request(self, address: str, request: QueueRequest[T]) -> T:
        answer = self._client.request(address, request.code, request.header, ok=request.ok)
        with reading_answer(address):
            return request.read(answer)

    def _address(self, queue: Queue) -> str:
        address, until_s = self._addresses.get(queue.broker_name, ("", 0.0))
        now_s = time.monotonic()
        if now_s >= until_s:
            address = self._looked_up(queue)
            self._addresses[queue.broker_name] = address, now_s + ADDRESS_KEPT_S
        return address

    def _looked_up(self, queue: Queue) -> str:
        address = self._client.broker_address(queue.broker_name)
        if address is None:
            self._client.route(self._full(queue).topic, is_fresh=True)
            address = self._client.broker_address(queue.broker_name)
        if address is None:
            raise ConnectError(queue.broker_name, "no name server has the address of its master")
        return address


def client_of(options: ConnectionOptions) -> Client:
    """This process's client for these options; a forked child opens another one.

    Raises:
      OptionError: the client refuses the options.
    """
    options = options.connection
    with _lock:
        key = os.getpid(), options
        client = _clients.get(key)
        if client is None:
            try:
                client = Client(
                    options.name_server,
                    timeout_s=options.pull_timeout_ms / 1000,
                    **_more(options),
                )
            except ConfigurationError as error:
                text = str(error)
                for path, attribute, option in _files(options):
                    if path and f"{attribute} {path}" in text:
                        text = text.replace(f"{attribute} {path}", f"{option} {path}")
                        text += "; every machine that runs tasks needs the file"
                raise OptionError(text) from error
            _clients[key] = client.open()
            atexit.register(client.close)
        return client


def close_clients() -> None:
    """Close the clients that `client_of` opened in this process; later calls open new ones."""
    with _lock:
        clients = [_clients.pop(key) for key in list(_clients) if key[0] == os.getpid()]
    for client in clients:
        atexit.unregister(client.close)
        client.close()


def _files(options: ConnectionOptions) -> tuple[tuple[str | None, str, str], ...]:
    """The files of TLS: path, name in the client's messages, option."""
    return (
        (options.tls_ca_file, "ca_file", "tlsCaFile"),
        (options.tls_cert_file, "cert_file", "tlsCertFile"),
        (options.tls_key_file, "key_file", "tlsKeyFile"),
    )


def _more(options: ConnectionOptions) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if options.namespace:
        more["namespace"] = options.namespace
    if options.secrets_file is not None:
        more["credentials"] = read_secrets(options.secrets_file)
    elif options.access_key is not None and options.secret_key is not None:
        token = options.security_token
        more["credentials"] = Credentials(
            options.access_key.reveal(),
            options.secret_key.reveal(),
            token.reveal() if token is not None else None,
        )
    password = options.tls_key_password
    settings = TlsSettings(
        enabled=options.tls or None,
        ca_file=options.tls_ca_file,
        cert_file=options.tls_cert_file,
        key_file=options.tls_key_file,
        key_password=None if password is None else password.reveal(),
        verify=None if options.tls_verify else False,
    )
    if settings.tls is not False:  # otherwise as the URL says
        more["tls"] = settings.tls
    return more
