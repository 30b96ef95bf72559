"""Network faults of a relay, set before or while it serves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol


class FaultListener(Protocol):
    """A relay, notified when its faults change; called from any thread, effective on return."""

    def wake(self) -> None:
        """Check the faults again."""

    def apply_refusal(self) -> None:
        """Close or open the ports."""

    def cut(self) -> None:
        """Close all connections."""

    def abandon(self, to_server: bool | None) -> None:
        """Forward nothing more on the present connections, in one direction or (None) both."""


class Faults:
    """The faults of one or more relays; may be changed at any time.

    Args: as the attributes.

    Attributes:
      delay_s: latency added to every byte, in each direction.
      jitter_s: maximum of the random delay added to each chunk; the order stays.
      split_bytes: size of the pieces in which data is forwarded; 0: as it came.
      split_pause_s: between the pieces.
      seed: of the random numbers; random if not given, so print it.
      cut_count: connections closed by `cut` and `cut_next`.
    """

    def __init__(
        self,
        *,
        delay_s: float = 0.0,
        jitter_s: float = 0.0,
        split_bytes: int = 0,
        split_pause_s: float = 0.0,
        seed: int | None = None,
    ) -> None:
        self.delay_s = delay_s
        self.jitter_s = jitter_s
        self.split_bytes = split_bytes
        self.split_pause_s = split_pause_s
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self.cut_count = 0
        self._random = random.Random(self.seed)
        self._is_held = False
        self._is_refusing = False
        self._cut_within: tuple[int, bool | None] | None = None
        self._relays: list[FaultListener] = []

    def __repr__(self) -> str:
        parts = [f"delay_s={self.delay_s}", f"jitter_s={self.jitter_s}"]
        parts += [f"split_bytes={self.split_bytes}", f"split_pause_s={self.split_pause_s}"]
        return f"Faults({', '.join(parts)}, seed={self.seed})"

    @property
    def is_held(self) -> bool:
        """Whether nothing is forwarded."""
        return self._is_held

    @property
    def is_refusing(self) -> bool:
        """Whether new connections are refused."""
        return self._is_refusing

    def hold(self) -> None:
        """Forward nothing until `release`; connections stay open, new ones are accepted."""
        self._is_held = True
        self._notify(lambda relay: relay.wake())

    def release(self) -> None:
        """Forward again, beginning with what came in the meantime."""
        self._is_held = False
        self._notify(lambda relay: relay.wake())

    def refuse(self) -> None:
        """Refuse new connections (the port is closed) until `accept`; present ones stay."""
        self._is_refusing = True
        self._notify(lambda relay: relay.apply_refusal())

    def accept(self) -> None:
        """Accept new connections again."""
        self._is_refusing = False
        self._notify(lambda relay: relay.apply_refusal())

    def cut(self) -> None:
        """Close every connection at once, on both sides; data in transit is lost."""
        self._notify(lambda relay: relay.cut())

    def cut_next(self, byte_count: int, *, to_server: bool | None = None) -> None:
        """Close a connection within its next frame, after `byte_count` bytes of the frame.

        Applies once, to the first frame that begins. Of a shorter frame all but the last byte is
        forwarded. Bytes that are not a frame count as one without end.

        Args:
          byte_count: 0 or more.
          to_server: only a frame in this direction; None: in either.
        Raises: ValueError: `byte_count` is negative.
        """
        if byte_count < 0:
            raise ValueError(f"cut_next after {byte_count} bytes")
        self._cut_within = (byte_count, to_server)

    def abandon(self, *, to_server: bool | None = None) -> None:
        """Make the present connections half-open: forward nothing more, not even their end.

        Each side finds its connection open and the other side silent, as when a machine or a
        stateful firewall between them is gone. New connections are not affected; `cut` closes all.

        Args:
          to_server: only in this direction; None: in both.
        """
        self._notify(lambda relay: relay.abandon(to_server))

    # ---- for the relays ------------------------------------------------------------------

    def add_listener(self, relay: FaultListener) -> None:
        """Notify this relay of changes from now on."""
        self._relays.append(relay)

    def remove_listener(self, relay: FaultListener) -> None:
        """Notify this relay no longer."""
        if relay in self._relays:
            self._relays.remove(relay)

    def next_delay_s(self) -> float:
        """The delay of the next chunk, jitter included."""
        return self.delay_s + (self._random.uniform(0, self.jitter_s) if self.jitter_s else 0.0)

    def take_cut(self, to_server: bool) -> int | None:
        """Take the byte count of the planned cut for a frame that begins now; None if there is
        none."""
        wanted = self._cut_within
        if wanted is None or wanted[1] not in (None, to_server):
            return None
        self._cut_within = None
        return wanted[0]

    def _notify(self, do: Callable[[FaultListener], None]) -> None:
        for relay in list(self._relays):
            do(relay)
