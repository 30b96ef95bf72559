"""The ledger of a failover run: what clients were promised, what they saw, and the verdict.

Pure. Each client sends the numbers 0, 1, 2 … to a queue that no other client uses, the next one
only after the one before is confirmed. So a queue must hold them in order; a number may be there
twice, because its first answer was lost.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

EXAMPLES_MAX: Final = 5
"""Places that a verdict names of each kind."""
NOTHING: Final = -1


@dataclass
class Verdict:
    """What went wrong; in each list are the first examples, `client:number` or `queue@offset`.

    Attributes:
      confirmed: sends that were confirmed.
      lost: confirmed messages that no queue has in the end.
      doubled: queue offsets at which two different messages were confirmed, consumed or are stored.
      unseen: confirmed messages that are stored, and that the consumers were never given.
      disordered: messages that are stored only behind one that was sent after them.
    """

    confirmed: int = 0
    lost: int = 0
    doubled: int = 0
    unseen: int = 0
    disordered: int = 0
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.lost or self.doubled or self.unseen or self.disordered)

    def note(self, kind: str, place: str) -> None:
        """Count one of a kind."""
        setattr(self, kind, getattr(self, kind) + 1)
        examples = self.examples.setdefault(kind, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(place)


class Ledger:
    """What clients were promised and saw.

    Args:
      client_count: clients, each with the queue of its number.
    """

    def __init__(self, client_count: int) -> None:
        self._confirmed = [array("q") for _ in range(client_count)]
        self._consumed: list[array[int]] = [array("q") for _ in range(client_count)]
        self._found: list[set[int]] = [set() for _ in range(client_count)]
        self._doubled: dict[str, None] = {}

    @property
    def confirmed_count(self) -> int:
        """Sends that were confirmed."""
        return sum(map(len, self._confirmed))

    def missing_count(self) -> int:
        """Confirmed messages that the consumers have not been given yet."""
        return sum(
            sum(number not in found for number in range(len(confirmed)))
            for confirmed, found in zip(self._confirmed, self._found, strict=True)
        )

    def next_number(self, client: int) -> int:
        """What a client is to send."""
        return len(self._confirmed[client])

    def confirm(self, client: int, queue_offset: int) -> None:
        """A client's next number was confirmed at an offset of its queue."""
        self._confirmed[client].append(queue_offset)

    def consume(self, client: int, queue_offset: int, number: int) -> None:
        """A consumer was given a number at an offset of a client's queue."""
        seen = self._consumed[client]
        if queue_offset >= len(seen):
            seen.extend([NOTHING] * (queue_offset + 1 - len(seen)))
        if seen[queue_offset] not in (NOTHING, number):
            self._doubled[f"{client}@{queue_offset}"] = None
        seen[queue_offset] = number
        self._found[client].add(number)

    def verdict(self, stored: Mapping[int, Sequence[int]], begins: Mapping[int, int]) -> Verdict:
        """What went wrong, with what the queues have in the end.

        Args:
          stored: the numbers in each client's queue, in the order of the queue.
          begins: the offset of the first of them.
        """
        verdict = Verdict(self.confirmed_count)
        for client, confirmed in enumerate(self._confirmed):
            numbers = stored.get(client, ())
            begin = begins.get(client, 0)
            there = set(numbers)
            for number in range(len(confirmed)):
                if number not in there:
                    verdict.note("lost", f"{client}:{number}")
                elif number not in self._found[client]:
                    verdict.note("unseen", f"{client}:{number}")
            for place in self._places_of_two(client, numbers, begin):
                self._doubled[place] = None
            for place in _disordered(client, numbers):
                verdict.note("disordered", place)
        for place in self._doubled:
            verdict.note("doubled", place)
        return verdict

    def _places_of_two(self, client: int, numbers: Sequence[int], begin: int) -> Iterable[str]:
        """Offsets of a queue at which different messages were."""
        confirmed: dict[int, int] = {}
        for number, offset in enumerate(self._confirmed[client]):
            if confirmed.setdefault(offset, number) != number:
                yield f"{client}@{offset}"
        for offset, number in enumerate(numbers, begin):
            seen = self._consumed[client]
            consumed = seen[offset] if offset < len(seen) else NOTHING
            if consumed not in (NOTHING, number) or confirmed.get(offset, number) != number:
                yield f"{client}@{offset}"
        for offset, number in confirmed.items():
            seen = self._consumed[client]
            if offset < len(seen) and seen[offset] not in (NOTHING, number):
                yield f"{client}@{offset}"


def _disordered(client: int, numbers: Sequence[int]) -> Iterable[str]:
    """Messages that came first behind one that was sent after them."""
    came: set[int] = set()
    most = NOTHING
    for number in numbers:
        if number < most and number not in came:
            yield f"{client}:{number}"
        came.add(number)
        most = max(most, number)
