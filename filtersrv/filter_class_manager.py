"""Which filter a group has for a topic, and where it comes from.

In this order: the operator's own (`filterClassesFile`), a class that was uploaded (302), a class of
the repository. Nobody uploads what clients of 5.3 and later name in their heartbeats: the broker is
asked for the name.

Java counterpart: filtersrv/filter/FilterClassManager.java of 4.2.0, which compiled whatever came
into its own process, and never compared the CRC.
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
"""Uploaded and fetched classes of one filter server: each may hold a process of 60 MB and more."""
REFRESH_INTERVAL_S: Final = 60.0
"""Between two looks into the repository. Source: FilterClassManager.start of 4.2.0."""
ASK_AGAIN_S: Final = 2.0
"""How long it counts that the broker knows no class of a group: less than the 3 s after which
clients pull again, because a first pull may come before the first heartbeat."""

NOT_REGISTERED: Final = "Find Filter class failed, not registered"
NO_CLASS: Final = "Find Filter class failed, registered but no class"

Key = tuple[str, str]
"""Topic and group."""


def crc_of(source: bytes) -> int:
    """The `classCRC` of a source."""
    return zlib.crc32(source) & 0x7FFFFFFF


@contextmanager
def refusing() -> Iterator[None]:
    """Inside, a filter's error is a refusal: SYSTEM_ERROR, in RocketMQ's words and then its own."""
    try:
        yield
    except FilterError as error:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"registerFilterClass error: {error}"
        ) from error


MakeWorker = Callable[[FilterLanguage, str, bytes], Awaitable[Filter]]
"""Compiles a class in a process of its own. Raises: FilterError."""
FetchSource = Callable[[str], Awaitable[tuple[FilterLanguage, bytes]]]
"""The source of a class by name. Raises: RepositoryError."""
AskClassName = Callable[[str, str], Awaitable[str | None]]
"""The class that a group's clients name for a topic; None: none, or nobody knows."""


@dataclass(slots=True)
class FilterClassInfo:
    """The class of a group for a topic.

    Attributes:
      class_name: full name.
      class_crc: of the source; 0: there is none, the operator's own or not fetched yet.
      language: of the source, or "configured".
      filter: what decides; None: there is none yet.
      error: why there is none, or why the newest source was not taken.
    """

    class_name: str
    class_crc: int = 0
    language: str = "configured"
    filter: Filter | None = None
    error: str = ""
    lock: trio.Lock = field(default_factory=trio.Lock)

    @property
    def is_in_force(self) -> bool:
        """Whether it decides: there is one, and it has not failed too often."""
        return self.filter is not None and not self.filter.is_disabled

    @property
    def state(self) -> str:
        """For people: ready, fetching, disabled or broken."""
        if self.filter is not None:
            return "disabled" if self.filter.is_disabled else "ready"
        return "broken" if self.error else "fetching"


class FilterClassManager:
    """The table of filter classes. Owned by the controller, whose tasks call it.

    Args:
      policy: what is allowed.
      configured: the operator's own filters by class name.
      make_worker: see `MakeWorker`.
      fetch_source: see `FetchSource`.
      ask_class_name: see `AskClassName`.
    """

    def __init__(
        self,
        policy: FilterPolicy,
        configured: Mapping[str, Filter],
        *,
        make_worker: MakeWorker,
        fetch_source: FetchSource,
        ask_class_name: AskClassName,
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
        """All that there are."""
        return self._classes

    async def register(
        self, topic: str, group: str, class_name: str, crc: int, language: str, source: bytes
    ) -> None:
        """Take a class that a consumer uploads (302); the same one again costs nothing.

        A class that does not compile leaves the one before it in force.

        Raises: RequestRefused: NO_PERMISSION, it may not; SYSTEM_ERROR, a name, the CRC or the size
          is wrong, or it does not compile.
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
                    "group %s replaces its class %s (CRC %d) for %s by %s (CRC %d)",
                    group, info.class_name, info.class_crc, topic, class_name, crc,
                )  # fmt: skip
            with refusing():
                await self._compile(info, class_name, wanted, source)
            if self._classes.get((topic, group)) is not info:  # removed meanwhile
                await self._end(info)

    async def find(self, topic: str, group: str) -> Filter:
        """The filter for a pull.

        Raises: RequestRefused: SYSTEM_ERROR, there is none; its consumer asks again.
        """
        info = self._classes.get((topic, group))
        if info is None:
            info = await self._look_for(topic, group)
        if info.filter is None:
            remark = f"{NO_CLASS}: {info.error}" if info.error else NO_CLASS
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        return info.filter

    async def remove(self, topic: str, group: str) -> bool:
        """Forget a class; whether there was one."""
        info = self._classes.pop((topic, group), None)
        if info is None:
            return False
        await self._end(info)
        return True

    async def refresh(self) -> None:
        """Look into the repository for all classes that come from there."""
        if self._policy.client_upload_filter_class_enable:
            return
        for info in list(self._classes.values()):
            if info.class_name not in self._configured:
                await self._fetch(info)

    async def aclose(self) -> None:
        """End all filters that hold processes."""
        for info in list(self._classes.values()):
            await self._end(info)
        self._classes.clear()

    # What is allowed

    def _check_names(self, topic: str, group: str, class_name: str) -> None:
        reason = refuse_topic(topic) or refuse_group(group)
        if reason is not None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        with refusing():
            check_class_name(class_name)

    def _check_upload(
        self, group: str, class_name: str, crc: int, language: str, source: bytes
    ) -> FilterLanguage:
        with refusing():
            check_source(source)
        reason = None
        if language not in {each.value for each in FilterLanguage}:
            reason = f"{language[:20]!r} is no language of filter classes"
        elif crc != crc_of(source):
            reason = f"the source's CRC is {crc_of(source)}, not {crc}"
        if reason is not None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"class {class_name}: {reason}")
        wanted = FilterLanguage(language)
        if not self._is_enabled(wanted):
            reason = f"filters in {language} are off here ({language}FilterEnable)"
        elif not self._policy.may_upload(group):
            reason = f"group {group} may not upload filter classes (filterUploadGroups)"
        if reason is not None:
            logger.warning("class %s of group %s is refused: %s", class_name, group, reason)
            raise RequestRefused(ResponseCode.NO_PERMISSION, reason)
        return wanted

    def _is_enabled(self, language: FilterLanguage) -> bool:
        if language is FilterLanguage.JAVA:
            return self._policy.java_filter_enable
        return self._policy.python_filter_enable

    # Classes that come and go

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
        """Raises: FilterError: what was there stays."""
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

    # Classes that nobody uploads

    async def _look_for(self, topic: str, group: str) -> FilterClassInfo:
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
        with refusing():
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
                    raise FilterCompileError(f"filters in {language.value} are off here")
                if not info.is_in_force or crc_of(source) != info.class_crc:
                    await self._compile(info, info.class_name, language, source)
            except (FilterError, RepositoryError) as error:
                logger.warning("class %s: %s", info.class_name, error)
                info.error = str(error)
