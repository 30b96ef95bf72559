"""ControlServer: serves the requests of the control port on a loopback socket.

The clock is moved by one request after the other, so that an answer describes what its own request
did. Faults and the disk can be changed meanwhile. The port has no accounts: it listens to this
machine only, and refuses the pages of a browser, whose requests have an `Origin`.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import trio

from ... import __version__
from ...remoting.metrics.answers import Answer
from ...remoting.metrics.http_server import HttpRequest, HttpServer, Interface
from ...remoting.server import open_listener
from ..driving import Driver
from ..errors import EmbeddedBrokerError
from ..recording.replay import RecordingError
from .fault_list import FaultList
from .requests import (
    ADVANCE_MS_MAX,
    Advance,
    ControlError,
    Crash,
    DiskState,
    NewFault,
    Nothing,
    SetTime,
    read_body,
)
from .restarts import Restarts

logger = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
"""The control port has no accounts, so only this machine reaches it."""

BODY_SIZE_MAX: Final = 64 * 1024
"""Bytes of a body: the largest usual one has some hundred; a remark may have a page of text."""

RECORDING_SIZE_MAX: Final = 32 << 20
"""Bytes of a recording that is replayed: BYTES_MAX of frames, as lines of JSON."""

LINES_TYPE: Final = "application/jsonl"
"""The type of a recording: an object of JSON a line."""

WHERE: Final = "the control port"
"""The name of this port in the log."""

Facts = Mapping[str, Any]
Serve = Callable[[bytes], Awaitable[Facts | Answer]]
"""Serves one request, of which it gets the body."""


class ControlServer:
    """Serves the control port.

    Args:
      driver: of the broker, which runs.
      addresses: `host:port` of each server, for `GET /`.
      restarts: of both servers.
    """

    def __init__(self, driver: Driver, addresses: Mapping[str, str], restarts: Restarts) -> None:
        self._driver = driver
        self._restarts = restarts
        self._addresses = addresses
        self._faults = FaultList(driver.faults)
        self._one_at_a_time = trio.Lock()
        self._table: dict[str, dict[str, Serve]] = {
            "/": {"GET": self._describe},
            "/time": {"GET": self._time},
            "/advance": {"POST": self._advance},
            "/freeze": {"POST": self._freeze},
            "/unfreeze": {"POST": self._unfreeze},
            "/set": {"POST": self._set},
            "/faults": {
                "GET": self._list_faults,
                "POST": self._add_fault,
                "DELETE": self._clear_faults,
            },
            "/disk": {"GET": self._disk, "POST": self._set_disk},
            "/restart": {"POST": self._restart},
            "/crash": {"POST": self._crash},
            "/record": {"POST": self._record},
            "/stop-recording": {"POST": self._stop_recording},
            "/replay": {"POST": self._replay},
        }

    async def serve(self, listener: socket.socket) -> None:
        """Serve until cancelled; the listener stays open."""
        interface = Interface(self.answer, refusal, RECORDING_SIZE_MAX, WHERE)
        await HttpServer(interface).serve(listener)

    async def answer(self, request: HttpRequest) -> Answer:
        """Serve one request."""
        try:
            found = await self._find(request)(request.body)
            return found if isinstance(found, Answer) else _answer(200, found)
        except ControlError as error:
            return refusal(error.status, str(error))
        except RecordingError as error:
            return refusal(400, str(error))
        except EmbeddedBrokerError as error:
            return refusal(409, str(error))
        except Exception as error:
            logger.exception(
                "%(method)s %(target)s at the control port failed",
                {"method": request.method, "target": request.target},
            )
            return refusal(500, f"{type(error).__name__}: {error}")

    def _find(self, request: HttpRequest) -> Serve:
        """What serves a request. Raises: ControlError: nothing does."""
        if "origin" in request.headers:
            raise ControlError(403, "the control port serves no pages of a browser (Origin)")
        path = request.target.partition("?")[0]
        methods = self._table.get(path)
        number = path.removeprefix("/faults/")
        if methods is None and number != path and number.isdecimal() and len(number) < 10:
            methods = {"DELETE": partial(self._delete_fault, int(number))}
        if methods is None:
            known = ", ".join(self._table)
            raise ControlError(404, f"there is no {path}; there are {known}")
        serve = methods.get(request.method)
        if serve is None:
            raise ControlError(405, f"{path} takes {' or '.join(methods)}, not {request.method}")
        if len(request.body) > BODY_SIZE_MAX and path != "/replay":
            raise ControlError(413, f"the body has more than {BODY_SIZE_MAX} bytes")
        return serve

    # ---- facts ---------------------------------------------------------------------------

    async def _describe(self, body: bytes) -> Facts:
        return {"trocket": __version__, "addresses": self._addresses}

    # ---- time ----------------------------------------------------------------------------

    async def _time(self, body: bytes = b"") -> Facts:
        clock = self._driver.clock
        return {"now_ms": clock.wall_ms(), "frozen": clock.is_frozen}

    async def _advance(self, body: bytes) -> Facts:
        milliseconds = read_body(body, Advance).ms
        async with self._one_at_a_time:
            await self._driver.advance(milliseconds)
            return await self._time()

    async def _freeze(self, body: bytes) -> Facts:
        read_body(body, Nothing)
        self._driver.clock.freeze()
        return await self._time()

    async def _unfreeze(self, body: bytes) -> Facts:
        read_body(body, Nothing)
        self._driver.clock.unfreeze()
        return await self._time()

    async def _set(self, body: bytes) -> Facts:
        wanted_ms = read_body(body, SetTime).now_ms
        async with self._one_at_a_time:
            now_ms = self._driver.clock.wall_ms()
            if wanted_ms < now_ms:
                text = f"now_ms={wanted_ms} is {now_ms - wanted_ms} ms ago: time cannot go back"
                raise ControlError(409, text)
            if wanted_ms - now_ms > ADVANCE_MS_MAX:
                raise ControlError(400, f"now_ms={wanted_ms} is more than ten years ahead")
            await self._driver.advance(wanted_ms - now_ms)
            return await self._time()

    # ---- faults --------------------------------------------------------------------------

    async def _add_fault(self, body: bytes) -> Facts:
        wanted = read_body(body, NewFault)
        wanted.check()
        return {"id": self._faults.add(wanted)}

    async def _list_faults(self, body: bytes) -> Facts:
        return {"faults": self._faults.facts()}

    async def _delete_fault(self, number: int, body: bytes) -> Facts:
        self._faults.remove(number)
        return {}

    async def _clear_faults(self, body: bytes) -> Facts:
        self._faults.clear()
        return {}

    # ---- disk ----------------------------------------------------------------------------

    async def _disk(self, body: bytes = b"") -> Facts:
        disk = self._driver.disk_state
        return {"full": disk.is_full, "failing_fsync": disk.fails_fsync, "slow_ms": disk.slow_ms}

    async def _set_disk(self, body: bytes) -> Facts:
        wanted = read_body(body, DiskState)
        self._driver.set_disk(wanted.full, wanted.failing_fsync, wanted.slow_ms)
        return await self._disk()

    # ---- restarts ------------------------------------------------------------------------

    async def _restart(self, body: bytes) -> Facts:
        read_body(body, Nothing)
        async with self._one_at_a_time:
            await self._restarts.restart()
            return await self._time()

    async def _crash(self, body: bytes) -> Facts:
        power_loss = read_body(body, Crash).power_loss
        async with self._one_at_a_time:
            await self._restarts.crash(power_loss)
            return await self._time()

    # ---- recordings ----------------------------------------------------------------------

    async def _record(self, body: bytes) -> Facts:
        read_body(body, Nothing)
        self._driver.tape.start()
        return {}

    async def _stop_recording(self, body: bytes) -> Answer:
        read_body(body, Nothing)
        return Answer(200, LINES_TYPE, self._driver.tape.stop().encode())

    async def _replay(self, body: bytes) -> Facts:
        try:
            recording = body.decode()
        except UnicodeDecodeError as error:
            raise ControlError(400, "the body is no recording: it is not UTF-8") from error
        replayed = await self._driver.replay(recording)
        return {"requests": [each._asdict() for each in replayed]}


def open_control_listener(port: int) -> socket.socket:
    """The socket of a control port; 0: any free port. Raises: OSError: it is in use."""
    return open_listener(HOST, port)


def refusal(status: int, text: str) -> Answer:
    """The answer to a request that is not served."""
    return _answer(status, {"error": text})


def _answer(status: int, facts: Facts) -> Answer:
    return Answer(status, "application/json", json.dumps(facts).encode() + b"\n")
