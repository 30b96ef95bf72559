"""The process in which a user's decoder runs: reads messages from a pipe, writes what it makes of
them. It is started by `decoder.py`, and imports nothing of trocket.

A frame is its length in four bytes, big-endian, and JSON. A request is [topic, properties, the
body in Base64]; an answer [outcome, text], and the first one says whether there is the function.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import resource
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

READY: Final = "ready"
TEXT: Final = "text"
BYTES: Final = "bytes"
JSON: Final = "json"
NOT_IMPORTABLE: Final = "not_importable"
RAISED: Final = "raised"
TOO_MUCH_MEMORY: Final = "too_much_memory"
NO_RESULT: Final = "no_result"
WRONG_RESULT: Final = "wrong_result"
TOO_LARGE: Final = "too_large"

LENGTH: Final = struct.Struct(">I")
DETAIL_LENGTH_MAX: Final = 2_000
STACK_FRAMES_MAX: Final = 5


def write_frame(pipe: BinaryIO, outcome: str, text: str) -> None:
    raw = json.dumps([outcome, text]).encode()
    pipe.write(LENGTH.pack(len(raw)) + raw)
    pipe.flush()


def read_frame(pipe: BinaryIO) -> Any:
    """The next request; None: the parent has closed its end."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return json.loads(pipe.read(LENGTH.unpack(head)[0]))


def outcome_of(result: object, size_max: int) -> tuple[str, str]:
    """What is answered for a result of the decoder.

    Args:
      size_max: characters or bytes at most.
    """
    if result is None:
        return NO_RESULT, ""
    if isinstance(result, bytes | bytearray | memoryview):
        raw = bytes(result)
        if len(raw) > size_max:
            return TOO_LARGE, str(len(raw))
        return BYTES, base64.b64encode(raw).decode()
    if isinstance(result, str):
        kind, text = TEXT, result
    else:
        try:
            kind, text = JSON, json.dumps(result, ensure_ascii=False, indent=2)
        except (TypeError, ValueError, RecursionError) as error:
            return WRONG_RESULT, f"{type(result).__name__}: {error}"[:DETAIL_LENGTH_MAX]
    if len(text) > size_max:
        return TOO_LARGE, str(len(text))
    return kind, text


def decode(
    function: Callable[[str, dict[str, str], bytes], object], request: Any, size_max: int
) -> tuple[str, str]:
    """Call the decoder. Whatever it raises is an answer.

    Args:
      size_max: characters of the answer at most.
    """
    topic, properties, body = request
    try:
        return outcome_of(function(topic, properties, base64.b64decode(body)), size_max)
    except MemoryError:
        return TOO_MUCH_MEMORY, ""
    except BaseException:  # noqa: BLE001 - SystemExit, too; the answer has it
        text = traceback.format_exc(limit=-STACK_FRAMES_MAX)
        return RAISED, text[-DETAIL_LENGTH_MAX:]


def find(spec: str) -> Callable[[str, dict[str, str], bytes], object]:
    """The function that `package:function` names. Raises: whatever its import does."""
    module, _, path = spec.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError(f"{spec} cannot be called: it is of type {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def limit_memory(size: int) -> None:
    """Let the process take `size` bytes more than it has; where the system does not count them,
    there is no limit."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_bytes().split()[0])
        limit = pages * resource.getpagesize() + size
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(spec: str, memory_size: int, size_max: int, timeout_s: float) -> None:
    """Answer requests until the parent closes its end.

    Args:
      spec: `package:function`.
      memory_size: bytes that the decoder may take.
      size_max: characters of an answer.
      timeout_s: seconds of a call, after which the parent ends this process; if the parent is
        gone, an alarm does.
    """
    # The decoder may print and read: what it gets for that are no pipes of the parent's.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    try:
        function = find(spec)
    except BaseException:  # noqa: BLE001 - the answer has it
        text = traceback.format_exc(limit=-STACK_FRAMES_MAX)
        write_frame(answers, NOT_IMPORTABLE, text[-DETAIL_LENGTH_MAX:])
        return
    limit_memory(memory_size)
    write_frame(answers, READY, "")
    while (request := read_frame(requests)) is not None:
        signal.setitimer(signal.ITIMER_REAL, timeout_s)
        outcome, text = decode(function, request, size_max)
        signal.setitimer(signal.ITIMER_REAL, 0)
        write_frame(answers, outcome, text)
        if outcome == TOO_MUCH_MEMORY:
            return  # its state is unknown


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
