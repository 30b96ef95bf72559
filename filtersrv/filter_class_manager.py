"""The filter classes of consumer groups, and their sources.

A filter comes from the operator's configuration (`filterClassesFile`), an upload (302) or the
repository, in this order. Clients from 5.3 on do not upload classes but name them in heartbeats:
then the broker is asked for the name.

Java counterpart: filtersrv/filter/FilterClassManager.java of 4.2.0, which compiled uploaded classes
into its own process and did not check the CRC.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from ..common.filter_policy import FilterPolicy
from ..common.topic_validator import refuse_group, refuse_topic
from ..remoting.errors import RequestRefused
from ..remoting.response_codes import ResponseCode
from .filters import Filter, FilterCompileError, FilterError
from .repository import RepositoryError
from .workers import FilterLanguage
from .workers.upload import check_class_name, check_source

logger = logging.getLogger(__name__)

CLASSES_MAX: Final = 256
"""Largest number of classes of a filter server: each may have a process of 60 MB or more."""
REFRESH_INTERVAL_S: Final = 60.0
"""Interval of fetching classes from the repository. Source: FilterClassManager.start of 4.2.0."""
ASK_AGAIN_S: Final = 2.0
"""Time for which the broker's answer that it knows no class of a group is cached.

It is less than the 3 s after which clients pull again, because a first pull can arrive before the
first heartbeat.
"""

NOT_REGISTERED: Final = "Find Filter class failed, not registered"
NO_CLASS: Final = "Find Filter class failed, registered but no class"

Key = tuple[str, str]
"""Topic and group."""


def crc_of(source: bytes) -> int:
    return zlib.crc32(source) & 0x7FFFFFFF


@contextmanager
def refused_on_filter_error() -> Iterator[None]:
    """Convert FilterError to RequestRefused with SYSTEM_ERROR; the text begins with RocketMQ's."""
    try:
        yield
    except FilterError as error:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"registerFilterClass error: {error}"
        ) from error


WorkerFactory = Callable[[FilterLanguage, str, bytes], Awaitable[Filter]]
"""Compiles a class in a separate process. Raises: FilterError."""
SourceFetcher = Callable[[str], Awaitable[tuple[FilterLanguage, bytes]]]
"""Returns the source of a class by name. Raises: RepositoryError."""
ClassNameLookup = Callable[[str, str], Awaitable[str | None]]
"""Returns the class that the clients of a group name for a topic; None if it is unknown."""


@dataclass(slots=True)
class FilterClassInfo:
    """The filter class of a group for a topic.

    Attributes:
      class_name: full name of the class.
      class_crc: CRC of the source; 0: the class has no source, or it is not fetched yet.
      language: language of the source, or "configured".
      filter: the filter; None if there is none yet.
      error: why there is no filter, or why the newest source was refused.
      lock: held while the class is compiled or fetched.
    """

    class_name: str
    class_crc: int = 0
    language: str = "configured"
    filter: Filter | None = None
    error: str = ""
    lock: trio.Lock = field(default_factory=trio.Lock)

    @property
    def is_in_force(self) -> bool:
        """Whether there is a filter that is not disabled."""
        return self.filter is not None and not self.filter.is_disabled

    @property
    def state(self) -> str:
        """The state shown to administrators: ready, fetching, disabled or broken."""
        if self.filter is not None:
            return "disabled" if self.filter.is_disabled else "ready"
        return "broken" if self.error else "fetching"


class FilterClassManager:
    """The table of filter classes, by topic and group.

    Args:
      policy: the permissions.
      configured: filters that the operator configured, by class name.
      make_worker: see `WorkerFactory`.
      fetch_source: see `SourceFetcher`.
      ask_class_name: see `ClassNameLookup`.
    """

    def __init__(
        self,
        policy: FilterPolicy,
        configured: Mapping[str, Filter],
        *,
        make_worker: WorkerFactory,
        fetch_source: SourceFetcher,
        ask_class_name: ClassNameLookup,
    ) -> None:
        self._policy = policy
        self._configured = configured
        self._make_worker = make_worker
        self._fetch_source = fetch_source
        self._ask_class_name = ask_class_name
        self._classes: dict[Key, FilterClassInfo] = {}
        self._asked_s: dict[Key, float] = {}

    @property
    def classes(self) -> Mapping[Key, FilterClassInfo]:
        return self._classes

    async def register(
        self, topic: str, group: str, class_name: str, crc: int, language: str, source: bytes
    ) -> None:
        """Register a class that a consumer uploads (302); an unchanged class is not compiled again.

        If a class does not compile, the one before it remains in force.

        Raises: RequestRefused: with NO_PERMISSION, if uploads are not permitted; with SYSTEM_ERROR,
          if a name, the CRC or the size is invalid, or the class does not compile.
        """
        self._check_names(topic, group, class_name)
        configured = self._configured.get(class_name)
        if configured is not None:
            await self._put(topic, group, FilterClassInfo(class_name, filter=configured))
            return
        if not self._policy.client_upload_filter_class_enable:
            await self._find_in_repository(topic, group, class_name)
            return
        wanted = self._check_upload(group, class_name, crc, language, source)
        info = self._classes.get((topic, group))
        if info is None:
            info = self._new(topic, group, class_name)
        async with info.lock:
            is_same = (info.class_name, info.class_crc) == (class_name, crc)
            if is_same and info.is_in_force:
                return
            if info.filter is not None and not is_same:
                logger.warning(
                    "group %(group)s replaces its class %(class_name)s (CRC %(class_crc)d) for "
                    "%(topic)s by %(new_class_name)s (CRC %(new_class_crc)d)",
                    {
                        "group": group,
                        "class_name": info.class_name,
                        "class_crc": info.class_crc,
                        "topic": topic,
                        "new_class_name": class_name,
                        "new_class_crc": crc,
                    },
                )
            with refused_on_filter_error():
                await self._compile(info, class_name, wanted, source)
            if self._classes.get((topic, group)) is not info:  # removed meanwhile
                await self._end(info)

    async def find(self, topic: str, group: str) -> Filter:
        """The filter for a pull.

        Raises: RequestRefused: with SYSTEM_ERROR, if there is none; the consumer retries.
        """
        info = self._classes.get((topic, group))
        if info is None:
            info = await self._find_by_heartbeat(topic, group)
        if info.filter is None:
            remark = f"{NO_CLASS}: {info.error}" if info.error else NO_CLASS
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        return info.filter

    async def remove(self, topic: str, group: str) -> bool:
        """Remove a class; returns whether there was one."""
        info = self._classes.pop((topic, group), None)
        if info is None:
            return False
        await self._end(info)
        return True

    async def refresh(self) -> None:
        """Fetch all classes of the repository again."""
        if self._policy.client_upload_filter_class_enable:
            return
        for info in list(self._classes.values()):
            if info.class_name not in self._configured:
                await self._fetch(info)

    async def aclose(self) -> None:
        """Close all filters, which ends their processes."""
        for info in list(self._classes.values()):
            await self._end(info)
        self._classes.clear()

    # Checks

    def _check_names(self, topic: str, group: str, class_name: str) -> None:
        reason = refuse_topic(topic) or refuse_group(group)
        if reason is not None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        with refused_on_filter_error():
            check_class_name(class_name)

    def _check_upload(
        self, group: str, class_name: str, crc: int, language: str, source: bytes
    ) -> FilterLanguage:
        with refused_on_filter_error():
            check_source(source)
        reason = None
        if language not in {each.value for each in FilterLanguage}:
            reason = f"{language[:20]!r} is not a language of filter classes"
        elif crc != crc_of(source):
            reason = f"the source's CRC is {crc_of(source)}, not {crc}"
        if reason is not None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"class {class_name}: {reason}")
        wanted = FilterLanguage(language)
        if not self._is_enabled(wanted):
            reason = f"filters in {language} are disabled here ({language}FilterEnable)"
        elif not self._policy.may_upload(group):
            reason = f"group {group} may not upload filter classes (filterUploadGroups)"
        if reason is not None:
            logger.warning(
                "class %(new_class_name)s of group %(group)s is refused: %(reason)s",
                {"new_class_name": class_name, "group": group, "reason": reason},
            )
            raise RequestRefused(ResponseCode.NO_PERMISSION, reason)
        return wanted

    def _is_enabled(self, language: FilterLanguage) -> bool:
        if language is FilterLanguage.JAVA:
            return self._policy.java_filter_enable
        return self._policy.python_filter_enable

    # Adding and removing classes

    def _new(self, topic: str, group: str, class_name: str) -> FilterClassInfo:
        if len(self._classes) >= CLASSES_MAX:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"no more than {CLASSES_MAX} filter classes are allowed"
            )
        info = self._classes[topic, group] = FilterClassInfo(class_name)
        return info

    async def _put(self, topic: str, group: str, info: FilterClassInfo) -> FilterClassInfo:
        before = self._classes.get((topic, group))
        if before is None:
            self._new(topic, group, info.class_name)
        self._classes[topic, group] = info
        if before is not None:
            await self._end(before)
        return info

    async def _compile(
        self, info: FilterClassInfo, class_name: str, language: FilterLanguage, source: bytes
    ) -> None:
        """Compile a class and replace the filter. Raises: FilterError: the old one is kept."""
        try:
            made = await self._make_worker(language, class_name, source)
        except FilterError as error:
            info.error = str(error)
            raise
        before, info.filter = info.filter, made
        info.class_name, info.class_crc = class_name, crc_of(source)
        info.language, info.error = language.value, ""
        if before is not None and before not in self._configured.values():
            await before.aclose()

    async def _end(self, info: FilterClassInfo) -> None:
        held, info.filter = info.filter, None
        if held is not None and held not in self._configured.values():
            await held.aclose()

    # Classes that are not uploaded

    async def _find_by_heartbeat(self, topic: str, group: str) -> FilterClassInfo:
        key = (topic, group)
        now_s = trio.current_time()
        if now_s < self._asked_s.get(key, -ASK_AGAIN_S) + ASK_AGAIN_S:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, NOT_REGISTERED)
        if len(self._asked_s) >= CLASSES_MAX:
            self._asked_s.clear()
        self._asked_s[key] = now_s
        class_name = await self._ask_class_name(topic, group)
        if class_name is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, NOT_REGISTERED)
        with refused_on_filter_error():
            check_class_name(class_name)
        configured = self._configured.get(class_name)
        if configured is not None:
            return await self._put(topic, group, FilterClassInfo(class_name, filter=configured))
        if self._policy.client_upload_filter_class_enable:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, NOT_REGISTERED)
        return await self._find_in_repository(topic, group, class_name)

    async def _find_in_repository(self, topic: str, group: str, class_name: str) -> FilterClassInfo:
        info = self._classes.get((topic, group))
        if info is None or info.class_name != class_name:
            info = await self._put(topic, group, FilterClassInfo(class_name, language=""))
            await self._fetch(info)
        return info

    async def _fetch(self, info: FilterClassInfo) -> None:
        async with info.lock:
            try:
                language, source = await self._fetch_source(info.class_name)
                if not self._is_enabled(language):
                    raise FilterCompileError(f"filters in {language.value} are disabled here")
                if not info.is_in_force or crc_of(source) != info.class_crc:
                    await self._compile(info, info.class_name, language, source)
            except (FilterError, RepositoryError) as error:
                logger.warning(
                    "the filter class %(class_name)s was not fetched: %(error)s",
                    {"class_name": info.class_name, "error": error},
                )
                info.error = str(error)
