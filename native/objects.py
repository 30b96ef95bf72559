"""Objects of the broker that the C extension reads by the names of their attributes.

mypy checks them where they are given to the extension, and a test that C uses these names and no
others. Queues of the store are not among them: C owns their state (`queue_state.py`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol


class TopicLike(Protocol):
    """The configuration of a topic."""

    @property
    def write_queue_nums(self) -> int: ...
    @property
    def topic_sys_flag(self) -> int: ...


class GroupLike(Protocol):
    """The configuration of a consumer group."""

    @property
    def group_sys_flag(self) -> int: ...


class ChannelLike(Protocol):
    """The connection of a pull."""

    @property
    def closed(self) -> bool: ...


class TermsLike(Protocol):
    """The terms of a pull; see `PullTerms`."""

    @property
    def group(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def offset_key(self) -> str: ...
    @property
    def count_max(self) -> int: ...
    @property
    def size_max(self) -> int: ...


class PullLike(Protocol):
    """A pull; see `Pull`."""

    @property
    def channel(self) -> ChannelLike: ...
    @property
    def opaque(self) -> int: ...
    @property
    def serialize_type(self) -> int: ...
    @property
    def terms(self) -> TermsLike: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def selector(self) -> object: ...


class HeldPullLike(Hashable, Protocol):
    """A held pull; C sets its `queue`, too."""

    queue: Any

    @property
    def pull(self) -> PullLike: ...


class HeldQueueLike(Protocol):
    """The held pulls of a queue."""

    @property
    def tagged(self) -> dict[Any, None]: ...
    @property
    def others(self) -> dict[Any, None]: ...
    @property
    def of_channels(self) -> object: ...
