"""What the process of an uploaded class may take. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SOURCE_BYTES_MAX: Final = 64 * 1024
"""Of an uploaded class."""

CLASS_NAME_LENGTH_MAX: Final = 255
"""Characters, packages included."""

MESSAGE_SHARE: Final = 8
"""A message may take this part of the memory: it is held twice, and the filter works on it."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of one worker. The keys of the configuration are in `common.filter_policy`.

    Attributes:
      memory_max_mib: MiB of memory, a JVM's own included. 128 hold a small JVM; Python needs 30.
      batch_timeout_s: for the messages of one pull.
      compile_timeout_s: from start to ready, and for a compiler, each.
      strikes_max: failures in a row after which the class is broken until it is uploaded anew.
    """

    memory_max_mib: int = 128
    batch_timeout_s: float = 1.0
    compile_timeout_s: float = 30.0
    strikes_max: int = 3

    @property
    def message_bytes_max(self) -> int:
        """Bytes that one message may have."""
        return self.memory_max_mib * 1024 * 1024 // MESSAGE_SHARE
