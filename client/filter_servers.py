"""Class filters: giving a consumer's classes to the filter servers, and which of them to pull from.

A broker's filter servers stand between it and the consumers of class-filtered topics; routes name
them. They hold nothing that lasts: a consumer uploads its classes to all of them, and again after
each round of heartbeats, when a route has changed, and when one says that it has no class.

Nothing is pulled from a filter server that has not taken our source: it may have another version of
the class, and what that one drops would be lost.

Java counterpart: MQClientInstance.uploadFilterClassSource, PullAPIWrapper of RocketMQ 4.2.0.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Final

import anyio
import anyio.lowlevel

from ..remoting.bodies import MessageQueue, TopicRouteData
from ..remoting.headers import RegisterMessageFilterClassRequestHeader
from ..remoting.request_codes import RequestCode
from .client import Client
from .core.subscription import FilterClass, filter_class_crc
from .errors import ClientError, ConnectError, RequestTimeoutError, ServerError
from .pulling import PullResult, broker_of
from .ticker import Ticker

logger = logging.getLogger(__name__)

UPLOAD_TIMEOUT_S: Final = 5.0
"""How long a filter server may take for a class. RocketMQ: 5,000 ms."""

_CLASS_MISSING: Final = "Find Filter class failed"
"""How a filter server's remark begins that has no class for a pull; its code is SYSTEM_ERROR.

Source: RocketMQ 4.2.0 DefaultRequestProcessor.pullMessageForward of the filter server.
"""


class _Upload:
    """What became of a topic's class at one filter server.

    Attributes:
      lock: held while it is on its way.
      ended_s: when it was answered last, or given up, by the loop's clock; -inf: never.
      error: why it was not taken; None: it was.
      logged: what the log has of that; "": nothing yet.
    """

    __slots__ = ("ended_s", "error", "lock", "logged")

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.ended_s = -inf
        self.error: ClientError | None = None
        self.logged = ""

    @property
    def is_answered(self) -> bool:
        """Whether the server has said yes or no."""
        return self.ended_s > -inf and (self.error is None or isinstance(self.error, ServerError))


class FilterServers:
    """The filter servers of a consumer's class-filtered topics.

    Lifecycle: made with its consumer; `run_once` is called again and again by a background task
    until `stop`.

    Args:
      client: open while it works.
      group: with namespace.
      classes: the class of each class-filtered topic, with namespace; may be filled later.
    """

    def __init__(self, client: Client, group: str, classes: Mapping[str, FilterClass]) -> None:
        self._client = client
        self._group = group
        self._classes = classes
        self._due = Ticker()
        self._is_stopped = False
        self._uploads: dict[tuple[str, str], _Upload] = {}

    def soon(self) -> None:
        """Upload now: who there is may be new, or may have forgotten."""
        self._due.tick_now()

    def stop(self) -> None:
        """Upload no more."""
        self._is_stopped = True
        self._due.tick_now()

    async def run_once(self) -> None:
        """Wait until it is time, and upload all classes to all filter servers."""
        await self._due.wait(inf)
        if not self._is_stopped:
            await self.upload()

    # Uploading

    async def upload(self) -> None:
        """Upload all classes to all filter servers; what fails is logged once, until it differs."""
        wanted: set[tuple[str, str]] = set()
        for topic, filter_class in self._classes.items():
            if filter_class.source is None:
                continue
            try:
                route = await self._client.route(topic)
            except ClientError as error:
                # Sharing out the queues tells of it, and looks again.
                logger.debug("the filter servers of %s are not known: %s", topic, error)
                wanted.update(key for key in self._uploads if key[0] == topic)
                continue
            wanted.update((topic, address) for address in filter_servers_of(route))
        for gone in self._uploads.keys() - wanted:
            del self._uploads[gone]
        async with anyio.create_task_group() as group:
            for topic, address in wanted:
                group.start_soon(self._upload_to, topic, address)

    async def _upload_to(self, topic: str, address: str) -> _Upload:
        """Upload a topic's class to one filter server; those who ask meanwhile share the answer."""
        asked_s = self._client.now_s()
        upload = self._uploads.setdefault((topic, address), _Upload())
        async with upload.lock:
            if upload.ended_s < asked_s:
                try:
                    await put_class(self._client, address, self._group, topic, self._classes[topic])
                    upload.error = None
                except ClientError as error:
                    # Whoever cancels the program ends the connections too: that is no news.
                    await anyio.lowlevel.checkpoint_if_cancelled()
                    upload.error = error
                upload.ended_s = self._client.now_s()
                self._tell(topic, address, upload)
        return upload

    def _tell(self, topic: str, address: str, upload: _Upload) -> None:
        name, error, logged = self._classes[topic].class_name, upload.error, upload.logged
        is_refused = isinstance(error, ServerError)
        # A connection breaks in several ways, one as good as the other.
        upload.logged = str(error) if is_refused else type(error).__name__
        if upload.logged == logged:
            return
        if error is None:
            logger.info("the filter class %s of %s is at %s now", name, topic, address)
        else:
            level = logging.ERROR if is_refused else logging.WARNING
            logger.log(level, "the filter class %s of %s is not there: %s", name, topic, error)

    # Pulling

    async def pull(
        self, queue: MessageQueue, pull_from: Callable[[str], Awaitable[PullResult]]
    ) -> PullResult:
        """Pull once from a filter server of a queue's broker; from another one if that is gone, or
        has not taken the class.

        Args:
          queue: of a class-filtered topic, with namespace.
          pull_from: pulls once from an address.

        Raises: ConnectError: also when the broker has no filter server. ServerError: also what
          refuses the class. Else as `pulling.pull`.
        """
        topic = queue.topic
        addresses = await self._addresses_of(queue)
        random.shuffle(addresses)
        addresses.sort(key=lambda address: self._is_missing_at(topic, address))
        failure: ClientError | None = None
        for address in addresses:
            failure = await self._failure_at(topic, address)
            if failure is not None:
                continue
            try:
                return await self._pull_from(address, topic, pull_from)
            except (ConnectError, RequestTimeoutError) as error:
                logger.debug("a pull of %s failed at one filter server: %s", queue, error)
                failure = error
        assert failure is not None  # there is an address
        # One failure may be reported for many pulls: its traceback must not grow.
        raise failure.with_traceback(None)

    def _is_missing_at(self, topic: str, address: str) -> bool:
        upload = self._uploads.get((topic, address))
        return upload is None or upload.error is not None

    async def _failure_at(self, topic: str, address: str) -> ClientError | None:
        """Why a filter server has not taken a topic's class; None: it has, or need not."""
        if self._classes[topic].source is None:
            return None
        upload = self._uploads.get((topic, address))
        if upload is None or not upload.is_answered:
            upload = await self._upload_to(topic, address)
        return upload.error

    async def _addresses_of(self, queue: MessageQueue) -> list[str]:
        route = await self._client.route(queue.topic)
        broker = broker_of(self._client, queue)
        addresses = route.filter_server_table.get(broker)
        if not addresses:
            raise ConnectError(
                queue.broker_name,
                f"the route of {queue.topic} has no filter server of this broker ({broker}), which "
                "a FilterClass needs; see filterServerNums in broker.conf",
            )
        return list(addresses)

    async def _pull_from(
        self, address: str, topic: str, pull_from: Callable[[str], Awaitable[PullResult]]
    ) -> PullResult:
        try:
            return await pull_from(address)
        except ServerError as error:
            is_missing = error.remark.startswith(_CLASS_MISSING)
            if not is_missing or self._classes[topic].source is None:
                raise
        # It was restarted, or its class was removed.
        upload = await self._upload_to(topic, address)
        if upload.error is not None:
            raise upload.error.with_traceback(None)
        return await pull_from(address)


def filter_servers_of(route: TopicRouteData) -> list[str]:
    """`host:port` of all filter servers of a route, each once, sorted."""
    return sorted({each for servers in route.filter_server_table.values() for each in servers})


async def put_class(
    client: Client,
    address: str,
    group: str,
    topic: str,
    filter_class: FilterClass,
    timeout_s: float = UPLOAD_TIMEOUT_S,
) -> None:
    """Upload a class to one filter server; done when it has compiled it.

    Args:
      address: `host:port`.
      group, topic: with namespace.

    Raises: ServerError: it refuses, or cannot compile it. ConnectError; RequestTimeoutError.
    """
    source = filter_class.source_bytes
    header = RegisterMessageFilterClassRequestHeader(
        consumer_group=group,
        topic=topic,
        class_name=filter_class.class_name,
        class_crc=filter_class_crc(source),
        # Not said of Java, so that Apache's filter servers get what they know.
        source_language=None if filter_class.language == "java" else filter_class.language,
    )
    code = RequestCode.REGISTER_MESSAGE_FILTER_CLASS
    await client.request(address, code, header, source, timeout_s=timeout_s)
