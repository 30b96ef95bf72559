"""atheris on everything that reads a peer's bytes.

    python tests/fuzz/fuzz.py TARGET [SECONDS] [libFuzzer options]
    python tests/fuzz/fuzz.py all 60          # each target in turn

The invariant of every target: a value, or the one documented error; never another exception, and
memory bounded by the input. Seeds are frames and records made by our own encoders; libFuzzer prints
its seed, and `-seed=N` repeats a run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["trocket"]):
    from trocket.remoting import codec, fastjson, message_batch, message_codec
    from trocket.remoting.errors import RemoteProtocolError
    from trocket.remoting.hosts import host_bytes

HOST = host_bytes("127.0.0.1", 10911)
COMMANDS = [
    codec.RemotingCommand(
        310, {"a": "group", "b": "topic", "i": "TAGS\1TagA\2"}, b"body", "remark", serialize_type=t
    )
    for t in (0, 1)
]
RECORD = message_codec.encode_record(
    "TopicTest",
    1,
    7,
    0,
    b"body",
    b"TAGS\1TagA\2",
    born_timestamp_ms=1,
    born_host=HOST,
    store_timestamp_ms=2,
    store_host=HOST,
)


def frames(data: bytes) -> None:
    """Any cut of any bytes: commands, need-more, or `error` is set."""
    decoder = codec.FrameDecoder()
    cut = data[0] if data else 0
    decoder.receive_data(data[:cut])
    decoder.receive_data(data[cut:])
    if decoder.error is not None and not isinstance(decoder.error, RemoteProtocolError):
        raise AssertionError(decoder.error)
    if decoder.partial_size > len(data):
        raise AssertionError("kept more than it was given")


def _header(data: bytes, serialize_type: int) -> None:
    mark = serialize_type << 24 | len(data)
    frame = (4 + len(data)).to_bytes(4, "big") + mark.to_bytes(4, "big") + data
    try:
        command = codec.decode_frame(frame)
    except RemoteProtocolError:
        return
    if serialize_type == 1:
        again = codec.decode_frame(codec.encode(command))
        if again != command:
            raise AssertionError(f"{command!r} became {again!r}")


def json_header(data: bytes) -> None:
    """A JSON header."""
    _header(data, 0)


def rocketmq_header(data: bytes) -> None:
    """A binary header; what was read must be written and read the same."""
    _header(data, 1)


def fastjson_document(data: bytes) -> None:
    """What fastjson might have written."""
    with suppress(RemoteProtocolError):
        fastjson.loads(data)


def record(data: bytes) -> None:
    """A stored record, and a run of them."""
    with suppress(RemoteProtocolError):
        message_codec.decode_record(data, 0, check_crc=False)
    with suppress(RemoteProtocolError):
        message_codec.decode_messages(data)


def batch(data: bytes) -> None:
    """A batch body."""
    with suppress(RemoteProtocolError):
        list(message_batch.iter_batch(data))


TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "frames": (frames, [b"\x10" + codec.encode(c) for c in COMMANDS]),
    "json_header": (json_header, [codec.encode(COMMANDS[0])[8:-4]]),
    "rocketmq_header": (rocketmq_header, [codec.encode(COMMANDS[1])[8:-4]]),
    "fastjson": (fastjson_document, [b'{{"a":1}:[1.5,true,null,"\\u0041"],0:{}}', b"{'k':'v'}"]),
    "record": (record, [RECORD, RECORD * 2]),
    "batch": (batch, [message_batch.encode_batch([])]),
}


def main() -> int:
    """Fuzz one target in this process, or each in a separate process."""
    name = sys.argv[1] if len(sys.argv) > 1 else "all"
    seconds = sys.argv[2] if len(sys.argv) > 2 else "60"
    if name == "all":
        for target in TARGETS:
            print(f"== {target}: {seconds} s", flush=True)
            command = [sys.executable, __file__, target, seconds, *sys.argv[3:]]
            status = subprocess.run(command, check=False).returncode
            if status != 0:
                return status
        return 0
    run, seeds = TARGETS[name]
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds):
            (Path(corpus) / str(number)).write_bytes(seed)
        options = [f"-max_total_time={seconds}", "-max_len=4096", "-rss_limit_mb=2048"]
        options.append(f"-artifact_prefix={tempfile.gettempdir()}/")
        atheris.Setup([sys.argv[0], *options, *sys.argv[3:], corpus], run)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
