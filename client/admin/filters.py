"""Class filters: which classes filter servers have, putting and removing them.

Java counterpart: none. Listing and removing are requests of ours, which Apache's filter servers of
4.2.0 do not serve; putting is the one that consumers send.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import msgspec

from ...remoting.bodies.base import Body
from ...remoting.headers import RemoveMessageFilterClassRequestHeader
from ...remoting.request_codes import RequestCode
from ..connection.client import reading_answer
from ..core.subscription import FilterClass, check_filter_class
from ..core.topics import check_consumer_group
from ..errors import ConfigurationError, RouteNotFoundError
from ..pushing.filter_servers import filter_servers_of, put_class
from ..sending.producer import configured
from .asking import Answers, Brokers, NotFoundError, ask_all
from .results import FilterClassInfo

PUT_TIMEOUT_S: Final = 40.0
"""Seconds for a filter server to take a class: it may compile for 30."""

WHO: Final = "filter servers"
"""Who is asked, for errors."""

T = TypeVar("T")


class _Class(Body, rename="camel"):
    """A class in the answer to LIST_MESSAGE_FILTER_CLASSES (30302)."""

    topic: str = ""
    consumer_group: str = ""
    class_name: str = ""
    class_crc: int = 0
    language: str = ""
    state: str = ""
    error: str = ""


class _Classes(Body, rename="camel"):
    """That answer."""

    classes: list[_Class] = msgspec.field(default_factory=list)


class FilterVerbs:
    """The part of `Admin` about class filters."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._client = brokers.client

    async def put_filter_class(
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
        full_group = self._brokers.full(configured(check_consumer_group, group))
        configured(check_filter_class, filter_class)
        if filter_class.source is None:
            raise ConfigurationError(f"the class {filter_class.class_name} is put without a source")
        full_topic = self._brokers.full(topic)
        timeout_s = max(self._client.timeout_s, PUT_TIMEOUT_S)

        async def put(address: str) -> None:
            await put_class(self._client, address, full_group, full_topic, filter_class, timeout_s)

        answers = await self._ask_filter_servers(await self._filter_servers(topic), put)
        done = tuple(answers.values)
        answers.check(f"putting the class {filter_class.class_name}", done, WHO)
        return done

    async def filter_classes(self, topic: str | None = None) -> list[FilterClassInfo]:
        """The classes that filter servers have, sorted by filter server, topic and group.

        Args:
          topic: of this one, at its filter servers; None: of all, at the filter servers of all
            brokers.

        Raises: NotFoundError: there is no filter server. RouteNotFoundError: there is no such
          topic. BrokersError; ServerError: also from Apache's filter servers; ConnectError.
        """

        async def ask(address: str) -> list[FilterClassInfo]:
            code = RequestCode.LIST_MESSAGE_FILTER_CLASSES
            answer = await self._client.request(address, code)
            with reading_answer(address):
                classes = _Classes.from_body(answer.body).classes
            return [self._filter_class(address, each) for each in classes if self._is_of(each)]

        answers = await self._ask_filter_servers(await self._filter_servers(topic), ask)
        found = [
            info
            for infos in answers.values.values()
            for info in infos
            if topic is None or info.topic == self._brokers.short(self._brokers.full(topic))
        ]
        found.sort(key=lambda info: (info.server, info.topic, info.group))
        answers.check("listing filter classes", found, WHO)
        return found

    def _is_of(self, found: _Class) -> bool:
        return self._brokers.is_ours(found.topic) and self._brokers.is_ours(found.consumer_group)

    def _filter_class(self, address: str, found: _Class) -> FilterClassInfo:
        return FilterClassInfo(
            server=address,
            topic=self._brokers.short(found.topic),
            group=self._brokers.short(found.consumer_group),
            class_name=found.class_name,
            class_crc=found.class_crc,
            language=found.language,
            state=found.state,
            error=found.error,
        )

    async def remove_filter_class(self, group: str, topic: str) -> tuple[str, ...]:
        """Have every filter server of a topic forget the class of a group.

        Its consumers get nothing then, until it is put or uploaded again.

        Returns: `host:port` of the filter servers, sorted.
        Raises: NotFoundError: the topic has no filter server. RouteNotFoundError: there is no such
          topic. ServerError: the filter server has no such class; BrokersError: some have not, and
          `partial` has the others. ConnectError.
        """
        header = RemoveMessageFilterClassRequestHeader(
            consumer_group=self._brokers.full(group), topic=self._brokers.full(topic)
        )

        async def remove(address: str) -> None:
            code = RequestCode.REMOVE_MESSAGE_FILTER_CLASS
            await self._client.request(address, code, header)

        answers = await self._ask_filter_servers(await self._filter_servers(topic), remove)
        done = tuple(answers.values)
        answers.check(f"removing the class of group {group}", done, WHO)
        return done

    async def _filter_servers(self, topic: str | None) -> list[str]:
        """The filter servers of a topic, or of all brokers; never none. Raises: NotFoundError."""
        if topic is not None:
            found = filter_servers_of(await self._brokers.route(self._brokers.full(topic)))
            where = f"no broker of the topic {topic}"
        else:
            found = await self._all_filter_servers()
            where = "no broker"
        if not found:
            raise NotFoundError(f"{where} has a filter server; see filterServerNums in broker.conf")
        return found

    async def _all_filter_servers(self) -> list[str]:
        """Only routes name them, and each broker has a topic that is called as it is."""
        found: set[str] = set()
        for name in {broker.name for broker in await self._brokers.find()}:
            try:
                found.update(filter_servers_of(await self._brokers.route(name)))
            except RouteNotFoundError:
                continue
        return sorted(found)

    async def _ask_filter_servers(
        self, addresses: Iterable[str], ask: Callable[[str], Awaitable[T]]
    ) -> Answers[str, T]:
        def call(address: str) -> Callable[[], Awaitable[T]]:
            return lambda: ask(address)

        return await ask_all({address: call(address) for address in addresses})
