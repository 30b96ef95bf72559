"""Material of the extension's fuzzer: frames, properties, and stores to put into."""

from __future__ import annotations

import struct
from random import Random
from typing import Final

from trocket.store.message_store import MessageStore

from ..native.traffic import KINDS, Traffic
from ..store.support import open_store

SIZES: Final = (
    0, 1, 2, 20, 21, 22, 36, 37, 40, 41, 64, 65, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000,
    1 << 24, 2**31 - 1, 2**31, 2**32 - 1,
)  # fmt: skip
FRAME_SIZE_MAX: Final = 1 << 16


STORE_USES: Final = 200
"""Cases that one pair of stores serves; its files are in memory."""


class Material:
    """Frames to change: recorded ones, and a supply of generated ones; and stores to put into.

    Args:
      recorded: may be empty.
    """

    def __init__(self, recorded: list[bytes]) -> None:
        self._recorded = [frame for frame in recorded if frame[4] == 1] or recorded
        self._stores: list[MessageStore] = []
        self._uses = 0

    def stores(self) -> list[MessageStore]:
        """Two stores that have the same content."""
        if self._uses % STORE_USES == 0:
            self._stores = [open_store(), open_store()]
        self._uses += 1
        return self._stores

    def frames(self, random: Random) -> bytes:
        """Some frames one after the other."""
        if self._recorded and random.random() < 0.5:
            return b"".join(random.choices(self._recorded, k=random.randint(1, 3)))
        traffic = Traffic(random.getrandbits(32), random.choice(KINDS), 1)
        return b"".join(traffic.request() for _ in range(random.randint(1, 4)))


def mutated(random: Random, data: bytes) -> bytes:
    """Bytes with some changes; often none."""
    made = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 2, 3, 10))):
        at = random.randrange(len(made) + 1)
        match random.randrange(7):
            case 0 if at < len(made):
                made[at] ^= 1 << random.randrange(8)
            case 1 if at < len(made):
                made[at] = random.choice((0, 1, 2, 0x7F, 0x80, 0xC3, 0xFF))
            case 2:
                del made[at : at + random.choice((1, 2, 4, 20))]
            case 3:
                made[at:at] = random.randbytes(random.choice((1, 2, 4, 50)))
            case 4:
                made[at : at + 4] = struct.pack(">I", random.choice(SIZES))
            case 5:
                made[at : at + 2] = struct.pack(">H", random.choice(SIZES) & 0xFFFF)
            case _:
                copied = random.randrange(len(made) + 1)
                made[at:at] = made[copied : copied + random.randrange(60)]
    if random.random() < 0.2:
        del made[random.randrange(len(made) + 1) :]
    return bytes(made)


NAMES: Final = (b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"A", b"AB", b"\xff")


def properties(random: Random) -> bytes:
    """Encoded properties, mostly right."""
    pieces = (*NAMES, b"\1", b"\1", b"\2", b"\2", b"value", b"", b"\0", b"k1 k2", "é".encode())
    return mutated(random, b"".join(random.choices(pieces, k=random.randrange(14))))
