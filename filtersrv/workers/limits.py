"""Limits of uploaded classes and their processes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SOURCE_BYTES_MAX: Final = 64 * 1024
"""Largest size of the source of an uploaded class."""

CLASS_NAME_LENGTH_MAX: Final = 255
"""Largest length of a class name, packages included."""

MESSAGE_SHARE: Final = 8
"""A message may have one part in this many of the memory: it is held twice, and processed."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of one worker. The keys of the configuration are in `common.filter_policy`.

    Attributes:
      memory_max_mib: largest size of the memory in MiB, including that of a JVM. 128 are enough for
        a small JVM; Python needs 30.
      batch_timeout_s: time limit of the messages of one pull, in seconds.
      compile_timeout_s: time limit of the start of a process, and of a compilation, in seconds.
      strikes_max: number of consecutive failures after which the class is disabled until it is
        uploaded again.
    """

    memory_max_mib: int = 128
    batch_timeout_s: float = 1.0
    compile_timeout_s: float = 30.0
    strikes_max: int = 3

    @property
    def message_bytes_max(self) -> int:
        """Largest size of a message, in bytes."""
        return self.memory_max_mib * 1024 * 1024 // MESSAGE_SHARE
