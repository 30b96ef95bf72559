"""The store's exceptions.

::

    StoreError
    ├── CopyError            bytes from a master cannot be part of this log
    ├── CorruptRecordError   bytes on disk break the format where they must not; refused, not cut
    ├── ForeignStateError    RocketMQ's broker left state here that this program cannot read
    ├── StoreIOError         the operating system refused a read or write; `path` says where
    └── StoreLockedError     another process has the data folder open

Expected outcomes of a put or a get are values (`PutMessageStatus`, `GetMessageStatus`).
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of all errors of the store."""


class CorruptRecordError(StoreError):
    """Bytes on disk break the format in a place where cutting them off would lose messages.

    Args:
      physical_offset: bytes from the start of the commit log (for other files: position in the
        file), >= 0.
      reason: what was wrong, in words an operator can act on.
    """

    def __init__(self, path: str, physical_offset: int, reason: str) -> None:
        super().__init__(f"{path}: at offset {physical_offset}: {reason}")
        self.path = path
        self.physical_offset = physical_offset
        self.reason = reason


class CopyError(StoreError):
    """Bytes from a master cannot be part of this log; those before them are stored.

    Args:
      physical_offset: their place in the log, bytes.
      reason: what is wrong, in words an operator can act on.
    """

    def __init__(self, physical_offset: int, reason: str) -> None:
        super().__init__(f"at offset {physical_offset} of the log: {reason}")
        self.physical_offset = physical_offset
        self.reason = reason


class StoreIOError(StoreError):
    """The operating system refused to read or write.

    Args:
      reason: the system's message and, where known, what to do.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class ForeignStateError(StoreError):
    """The data folder has state of RocketMQ's broker that this program cannot read.

    Args:
      reason: what it is, and what to do, in words an operator can act on.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class StoreLockedError(StoreError):
    """Another process has this data folder open.

    Args:
      path: the lock file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: another process is using this data folder; stop it, or give this broker "
            "its own folder (storePathRootDir)"
        )
        self.path = path
