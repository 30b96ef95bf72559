"""`trocket interop record`: the traffic between clients and a cluster, a line per frame."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Annotated, TypeAlias

import typer

from ...common.terminal import say
from ..session import fail, usage

if TYPE_CHECKING:
    from ...interop.relay import ClusterRelay, OnFrame, Relay
    from ...testing.recording.frame_stream import SeenFrame

Waiting: TypeAlias = "SimpleQueue[SeenFrame | None]"
"""Frames from the relay's thread, in order; None ends the recording."""


def record(
    namesrv: Annotated[
        str,
        typer.Option(
            "--namesrv",
            metavar="HOST:PORT",
            help="Record this name server and its brokers.",
        ),
    ] = "",
    target: Annotated[
        str, typer.Option("--target", metavar="HOST:PORT", help="Record only this server.")
    ] = "",
    listen: Annotated[
        int,
        typer.Option(
            "--listen", min=0, max=65_535, metavar="PORT", help="Listen on PORT; 0: any free port."
        ),
    ] = 0,
    host: Annotated[
        str,
        typer.Option("--host", metavar="HOST", help="Listen on this address."),
    ] = "127.0.0.1",
    out: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", dir_okay=False, help="Write to FILE, too."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a JSON object a line; with --output, in FILE only."),
    ] = False,
) -> None:
    """Record the traffic between clients and a cluster, until Ctrl-C.

    Let clients connect to the printed address instead of the name server's; the recorder gives them
    its own addresses for the brokers, too. Access keys and signatures are masked with asterisks.
    """
    if bool(namesrv) is bool(target):
        usage("give either --namesrv HOST:PORT or --target HOST:PORT")
    waiting: Waiting = SimpleQueue()
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(_opened(out)) if out is not None else None
        relay, address = _open_relay(namesrv, target, host, listen, waiting.put)
        stack.callback(relay.close)
        stack.enter_context(_ending(lambda: waiting.put(None)))
        say(f"{'name server' if namesrv else 'server'} for clients: {address}; Ctrl-C ends")
        count = _write_all(waiting, file, as_json)
    say(f"{count} frame{'' if count == 1 else 's'}")


def _opened(path: Path) -> IO[str]:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")


def _open_relay(
    namesrv: str, target: str, host: str, port: int, on_frame: OnFrame
) -> tuple[Relay | ClusterRelay, str]:
    from ...interop.process import PeerError
    from ...interop.relay import ClusterRelay, Relay

    try:
        if namesrv:
            cluster = ClusterRelay(namesrv, on_frame=on_frame, host=host, port=port)
            return cluster, cluster.namesrv_address
        relay = Relay(target, on_frame=on_frame, host=host, port=port)
    except ValueError as error:
        usage(str(error))
    except OSError as error:
        fail(f"cannot listen on {host}:{port or 'any port'}: {error.strerror}")
    except PeerError as error:
        fail(error)
    return relay, relay.address


@contextlib.contextmanager
def _ending(end: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM call `end` instead of ending the process."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: end()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _write_all(waiting: Waiting, file: IO[str] | None, as_json: bool) -> int:
    """Write frames until a None arrives, and return the number of frames."""
    from ...testing.recording.frame_lines import frame_line, frame_object

    count = 0
    known: set[int] = set()
    while (frame := waiting.get()) is not None:
        count += frame.is_frame
        line = frame_line(frame)
        if frame.connection not in known:
            known.add(frame.connection)
            line = f"c{frame.connection}: {frame.client} with {frame.server}\n{line}"
        text = json.dumps(frame_object(frame)) if as_json else line
        if file is not None:
            file.write(text + "\n")
            file.flush()
        _echo(line if file is not None else text)
    return count


def _echo(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
