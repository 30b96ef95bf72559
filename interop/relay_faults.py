"""What goes wrong in a relay between clients and servers: set before or while it serves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol


class Faulty(Protocol):
    """What a relay does when its faults change; called from any thread, done on return."""

    def wake(self) -> None:
        """Look at the faults again."""

    def apply_refusal(self) -> None:
        """Close or open the ports."""

    def cut(self) -> None:
        """Close all connections."""

    def abandon(self, to_server: bool | None) -> None:
        """Let nothing pass on the connections that are there, in this direction or in both."""


class Faults:
    """What goes wrong in one or more relays; may be changed at any time.

    Args: as the attributes.

    Attributes:
      delay_s: every byte arrives so much later, in each direction.
      jitter_s: up to so much is added to the delay of each chunk, at random; the order stays.
      split_bytes: what is passed on goes in pieces of so many bytes; 0: as it came.
      split_pause_s: between the pieces.
      seed: of what is random; made up if not given, so print it.
      cut_count: connections that `cut` and `cut_next` have ended.
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
        self._relays: list[Faulty] = []

    def __repr__(self) -> str:
        parts = [f"delay_s={self.delay_s}", f"jitter_s={self.jitter_s}"]
        parts += [f"split_bytes={self.split_bytes}", f"split_pause_s={self.split_pause_s}"]
        return f"Faults({', '.join(parts)}, seed={self.seed})"

    @property
    def is_held(self) -> bool:
        """Whether nothing passes."""
        return self._is_held

    @property
    def is_refusing(self) -> bool:
        """Whether new connections are refused."""
        return self._is_refusing

    def hold(self) -> None:
        """Let nothing pass until `release`; connections stay open, and new ones are taken."""
        self._is_held = True
        self._tell(lambda relay: relay.wake())

    def release(self) -> None:
        """Let everything pass again, what came in the meantime too."""
        self._is_held = False
        self._tell(lambda relay: relay.wake())

    def refuse(self) -> None:
        """Refuse new connections (the port is closed) until `accept`; those there are stay."""
        self._is_refusing = True
        self._tell(lambda relay: relay.apply_refusal())

    def accept(self) -> None:
        """Take new connections again."""
        self._is_refusing = False
        self._tell(lambda relay: relay.apply_refusal())

    def cut(self) -> None:
        """Close every connection at once, on both sides; what is on its way is lost."""
        self._tell(lambda relay: relay.cut())

    def cut_next(self, byte_count: int, *, to_server: bool | None = None) -> None:
        """Cut a connection within its next frame: so many bytes of it pass, then it is closed.

        Counts once, for the first frame that begins; of a frame that is not longer, all but the
        last byte pass. Where bytes pass that are no frames, so many more of them do.

        Args:
          byte_count: 0 or more.
          to_server: only a frame in this direction; None: in any.
        """
        if byte_count < 0:
            raise ValueError(f"cut_next after {byte_count} bytes")
        self._cut_within = (byte_count, to_server)

    def abandon(self, *, to_server: bool | None = None) -> None:
        """Let nothing pass any more on the connections that are there, the end of one included.

        So each side finds its connection open and the other one silent, as when a machine or what
        tracks connections between them is gone. New connections are as ever; `cut` closes all.

        Args:
          to_server: only in this direction; None: in both.
        """
        self._tell(lambda relay: relay.abandon(to_server))

    # ---- for the relays ------------------------------------------------------------------

    def join(self, relay: Faulty) -> None:
        """Tell this relay of changes from now on."""
        self._relays.append(relay)

    def leave(self, relay: Faulty) -> None:
        """Do so no longer."""
        if relay in self._relays:
            self._relays.remove(relay)

    def next_delay_s(self) -> float:
        """How much later the next bytes are to arrive."""
        return self.delay_s + (self._random.uniform(0, self.jitter_s) if self.jitter_s else 0.0)

    def take_cut(self, to_server: bool) -> int | None:
        """After how many bytes the frame that begins now is cut; None: it is not.

        Once asked, a cut that waited for such a frame is over.
        """
        wanted = self._cut_within
        if wanted is None or wanted[1] not in (None, to_server):
            return None
        self._cut_within = None
        return wanted[0]

    def _tell(self, do: Callable[[Faulty], None]) -> None:
        for relay in list(self._relays):
            do(relay)
