"""Class filters: uploads of a consumer's classes to filter servers, and pulls from them.

Consumers of class-filtered topics pull from filter servers, which pull from their broker; routes
name them. Filter servers keep no state over a restart. So a consumer uploads its classes to all of
them at the start, after each round of heartbeats, when a route has changed, and when a filter
server answers that it does not have a class.

The consumer does not pull from a filter server that has not accepted its source: that server might
have another version of the class, and messages that this version drops would be lost.

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

from ...remoting.bodies import MessageQueue, TopicRouteData
from ...remoting.headers import RegisterMessageFilterClassRequestHeader
from ...remoting.request_codes import RequestCode
from ..connection.client import Client
from ..core.subscription import FilterClass, filter_class_crc
from ..errors import ClientError, ConnectError, RequestTimeoutError, ServerError
from ..pulling.pulls import PullResult, broker_of
from ..tasks.task_group import TaskGroup
from ..tasks.ticker import Ticker

logger = logging.getLogger(__name__)

UPLOAD_TIMEOUT_S: Final = 5.0
"""Time limit of an upload, compilation included. RocketMQ: 5,000 ms."""

_CLASS_MISSING: Final = "Find Filter class failed"
"""Start of the remark of a filter server that does not have the class; the code is SYSTEM_ERROR.

Source: RocketMQ 4.2.0 DefaultRequestProcessor.pullMessageForward of the filter server.
"""


class _Upload:
    """The last upload of a topic's class to one filter server.

    Attributes:
      lock: held during an upload.
      ended_s: end of the last upload, by the loop's clock; -inf: there was none.
      error: why it failed; None: it succeeded.
      logged: the outcome that was logged last; "": none.
    """

    __slots__ = ("ended_s", "error", "lock", "logged")

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.ended_s = -inf
        self.error: ClientError | None = None
        self.logged = ""

    @property
    def is_answered(self) -> bool:
        """Whether the server has accepted or refused the class."""
        return self.ended_s > -inf and (self.error is None or isinstance(self.error, ServerError))


class FilterServers:
    """The filter servers of a consumer's class-filtered topics.

    Lifecycle: created with its consumer; a background task calls `run_once` repeatedly until
    `stop`.

    Args:
      client: an open client.
      group: name of the group, with namespace.
      classes: the class by topic, with namespace; it can be filled later.
    """

    def __init__(self, client: Client, group: str, classes: Mapping[str, FilterClass]) -> None:
        self._client = client
        self._group = group
        self._classes = classes
        self._due = Ticker()
        self._is_stopped = False
        self._silent: set[str] = set()  # addresses that did not answer the last pull
        self._uploads: dict[tuple[str, str], _Upload] = {}

    def upload_soon(self) -> None:
        """Upload in the background: filter servers may be new, or may have been restarted."""
        self._due.tick_now()

    def stop(self) -> None:
        """Stop uploading."""
        self._is_stopped = True
        self._due.tick_now()

    async def run_once(self) -> None:
        """Wait for `upload_soon`, then upload all classes to all filter servers."""
        await self._due.wait(inf)
        if not self._is_stopped:
            await self.upload()

    # Uploading

    async def upload(self) -> None:
        """Upload all classes to all filter servers; a failure is logged when it is a new one."""
        wanted: set[tuple[str, str]] = set()
        for topic, filter_class in self._classes.items():
            if filter_class.source is None:
                continue
            try:
                route = await self._client.route(topic, wait_s=0)
            except ClientError as error:
                # The rebalance logs it as a warning, and retries.
                logger.debug("the filter servers of %s are not known: %s", topic, error)
                wanted.update(key for key in self._uploads if key[0] == topic)
                continue
            wanted.update((topic, address) for address in filter_servers_of(route))
        for gone in self._uploads.keys() - wanted:
            del self._uploads[gone]
        async with TaskGroup() as group:
            for topic, address in wanted:
                group.start_soon(self._upload_to, topic, address)

    async def _upload_to(self, topic: str, address: str) -> _Upload:
        """Upload a topic's class to one filter server; concurrent callers share one upload."""
        called_s = self._client.now_s()
        upload = self._uploads.setdefault((topic, address), _Upload())
        async with upload.lock:
            if upload.ended_s < called_s:
                try:
                    await put_class(self._client, address, self._group, topic, self._classes[topic])
                    upload.error = None
                except ClientError as error:
                    # Cancelling the program also closes connections: do not log that.
                    await anyio.lowlevel.checkpoint_if_cancelled()
                    upload.error = error
                upload.ended_s = self._client.now_s()
                self._log_outcome(topic, address, upload)
        return upload

    def _log_outcome(self, topic: str, address: str, upload: _Upload) -> None:
        name, error, logged = self._classes[topic].class_name, upload.error, upload.logged
        is_refused = isinstance(error, ServerError)
        # Connections fail with many texts for the same cause: compare only the type of the error.
        upload.logged = str(error) if is_refused else type(error).__name__
        if upload.logged == logged:
            return
        if error is None:
            logger.info("the filter server %s has the class %s of %s", address, name, topic)
        else:
            level = logging.ERROR if is_refused else logging.WARNING
            logger.log(level, "the class %s of %s could not be uploaded: %s", name, topic, error)

    # Pulling

    async def pull(
        self, queue: MessageQueue, pull_from: Callable[[str], Awaitable[PullResult]]
    ) -> PullResult:
        """Pull once from one of the filter servers of a queue's broker.

        The others are tried if it cannot be reached or has not accepted the class.

        Args:
          queue: a queue of a class-filtered topic, with namespace.
          pull_from: pulls once from an address.

        Raises: ConnectError: also if the broker has no filter server. ServerError: also if the
          class was refused. Otherwise as `pulling.pull`.
        """
        topic = queue.topic
        addresses = await self._addresses_of(queue)
        random.shuffle(addresses)
        # A pull is held for 15 s, so one that hangs is noticed late: it is asked last from then on.
        addresses.sort(
            key=lambda address: (address in self._silent, self._is_missing_at(topic, address))
        )
        failure: ClientError | None = None
        for address in addresses:
            failure = await self._failure_at(topic, address)
            if failure is not None:
                continue
            try:
                result = await self._pull_from(address, topic, pull_from)
                self._silent.discard(address)
                return result
            except (ConnectError, RequestTimeoutError) as error:
                logger.debug("a pull of %s failed at one filter server: %s", queue, error)
                self._silent.add(address)
                failure = error
        assert failure is not None  # there is an address
        # The same error object may be raised for many pulls: its traceback must not grow.
        raise failure.with_traceback(None)

    def _is_missing_at(self, topic: str, address: str) -> bool:
        upload = self._uploads.get((topic, address))
        return upload is None or upload.error is not None

    async def _failure_at(self, topic: str, address: str) -> ClientError | None:
        """Why a filter server lacks a topic's class; None: it has it, or needs no upload."""
        if self._classes[topic].source is None:
            return None
        upload = self._uploads.get((topic, address))
        if upload is None or not upload.is_answered:
            upload = await self._upload_to(topic, address)
        return upload.error

    async def _addresses_of(self, queue: MessageQueue) -> list[str]:
        route = await self._client.route(queue.topic, wait_s=0)
        broker = broker_of(self._client, queue)
        addresses = route.filter_server_table.get(broker)
        if not addresses:
            raise ConnectError(
                queue.broker_name,
                f"the route of {queue.topic} has no filter server of this broker ({broker}), which "
                "a FilterClass needs: set filterServerNums in broker.conf",
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
        # The filter server was restarted, or the class was removed.
        upload = await self._upload_to(topic, address)
        if upload.error is not None:
            raise upload.error.with_traceback(None)
        return await pull_from(address)


def filter_servers_of(route: TopicRouteData) -> list[str]:
    """The addresses, `host:port`, of all filter servers of a route, sorted, without duplicates."""
    return sorted({each for servers in route.filter_server_table.values() for each in servers})


async def put_class(
    client: Client,
    address: str,
    group: str,
    topic: str,
    filter_class: FilterClass,
    timeout_s: float = UPLOAD_TIMEOUT_S,
) -> None:
    """Upload a class to one filter server, and wait until the server has compiled it.

    Args:
      client: an open client.
      address: address of the filter server, `host:port`.
      group, topic: names with namespace.
      filter_class: the class, with its source.
      timeout_s: time limit in seconds, compilation included.

    Raises: ServerError: the server refuses the class, or cannot compile it. ConnectError: it cannot
      be reached. RequestTimeoutError: it did not answer in time.
    """
    source = filter_class.source_bytes
    header = RegisterMessageFilterClassRequestHeader(
        consumer_group=group,
        topic=topic,
        class_name=filter_class.class_name,
        class_crc=filter_class_crc(source),
        # Left out for Java: Apache's filter servers do not know the field.
        source_language=None if filter_class.language == "java" else filter_class.language,
    )
    code = RequestCode.REGISTER_MESSAGE_FILTER_CLASS
    await client.request(address, code, header, source, timeout_s=timeout_s)
