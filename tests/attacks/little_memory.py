"""A server's process with little address space, and what strangers send it.

It imports nothing of trocket, so that tests which use it can be run on older versions, too.
"""

from __future__ import annotations

import struct

MIB = 1 << 20
FRAME_SIZE_MAX = 16 * MIB
HALF_FRAME = struct.pack(">ii", FRAME_SIZE_MAX, 100) + bytes(15 * MIB)
PROCESS_STRANGERS = 40
ADDRESS_SPACE_BYTES = 300 * MIB

LIMITED = """
import os, resource, sys
size = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (size, size))
os.environ["MALLOC_ARENA_MAX"] = "1"  # else glibc takes 64 MiB of it for each thread
os.execv(sys.executable, [sys.executable, "-m", "trocket.cli.main", *sys.argv[2:]])
"""
"""A program that limits itself to the bytes of its first argument, and runs trocket's commands."""
