"""Injection: raises one error at a chosen call or await of the servers that run in this loop.

A *point* is a moment at which a server's task waits, or calls a collaborator: the entry of a method
of a class in `COMPONENTS`, called from another component. A run counts its points; another run of
the same scenario raises at one of them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

import trocket.broker
import trocket.namesrv
import trocket.remoting
import trocket.store
from trocket.common import supervision

PACKAGES = (trocket.broker, trocket.namesrv, trocket.remoting, trocket.store)

STRUCTURE = {
    "BrokerController.run": "waits for the tasks that it owns",
    "BrokerController._serve": "waits for the tasks that it owns",
    "NamesrvController.run": "waits for the tasks that it owns",
    "RemotingServer.serve": "waits for the tasks that it owns",
    "RemotingClient.run": "waits for the tasks that it owns",
    "HaMaster.serve": "waits for the tasks that it owns",
    "run_services": "waits for the tasks that it owns",
    "_run_in": "waits for the tasks that it owns",
    "Supervisor._supervise": "the guard itself, in its pause",
    "RemotingServer.serve_stream": "the test's own entry; sockets do not pass it",
}
"""Where an await only joins a nursery or sleeps for ever: no collaborator can raise there."""

NOT_WRAPPED = {
    "trocket.common.supervision": "the guard itself",
    "trocket.remoting.codec": "the client of the scenario uses it, too",
    "trocket.remoting.poller": "connections in memory have none",
    "trocket.disk.memory_disk": "wrapped as the disk of the embedded broker",
}

ERRORS: tuple[type[Exception], ...] = (
    RuntimeError, OSError, KeyError, MemoryError, ValueError, AssertionError,
)  # fmt: skip


class Injected(Exception):
    """Mixed into each error that is raised, so that a test knows it again."""


def make_error(kind: type[Exception], point: str) -> Exception:
    """An error of a kind that also is `Injected`."""
    made: type[Exception] = type(f"Injected{kind.__name__}", (kind, Injected), {})
    return made(f"injected at {point}")


class Points:
    """Notes the points that are reached while it is active, and raises at one of them.

    Args:
      chosen: the name of a point, and how often it was reached before the error is raised there;
        None: nowhere. A number among all points would not do: a slow machine has a few more of
        them, such as lines about slow requests.
    """

    def __init__(
        self, chosen: tuple[str, int] | None = None, kind: type[Exception] = RuntimeError
    ) -> None:
        self.names: list[str] = []
        self._counts: Counter[str] = Counter()
        self.is_active = False
        self.raised: Exception | None = None
        self.inside: set[str] = set()
        self._chosen = chosen
        self._kind = kind

    def reach(self, name: str) -> Exception | None:
        """Count a point; the error to be raised there, if it is the chosen one."""
        if not self.is_active:
            return None
        self.names.append(name)
        count = self._counts[name]
        self._counts[name] += 1
        if (name, count) != self._chosen:
            return None
        self.raised = make_error(self._kind, name)
        return self.raised


# ---- calls ---------------------------------------------------------------------------------


def component_of(module: str) -> str:
    """The store is one component; elsewhere each module is one."""
    return "trocket.store" if module.startswith("trocket.store") else module


def wrap_call(function: Callable[..., Any], name: str, component: str, points: Points) -> Any:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wait(*args: Any, **options: Any) -> Any:
            error = points.reach(f"call of {name}")
            if error is not None:
                raise error
            return await function(*args, **options)

        return wait

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        inside = points.inside
        if not points.is_active or component in inside:
            return function(*args, **options)
        error = points.reach(f"call of {name}")
        if error is not None:
            raise error
        inside.add(component)
        try:
            return function(*args, **options)
        finally:
            inside.discard(component)

    return call


def classes() -> Iterator[tuple[type, str]]:
    """Every class of the servers' packages, and its component."""
    for package in PACKAGES:
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.name.endswith("__main__") or ".offline" in info.name:
                continue
            if info.name in NOT_WRAPPED:
                continue
            module = importlib.import_module(info.name)
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == info.name:
                    yield value, component_of(info.name)
    from trocket.disk.memory_disk import MemoryDisk, MemoryFile
    from trocket.testing.clock import TravelClock

    for disk in (MemoryDisk, MemoryFile):
        yield disk, "disk"
    yield TravelClock, "clock"


def wrap_classes(monkeypatch: pytest.MonkeyPatch, points: Points) -> None:
    """Wrap the public methods of every class, but those of plain data and of errors."""
    for owner, component in classes():
        if issubclass(owner, (BaseException, tuple)) or hasattr(owner, "__struct_fields__"):
            continue
        if hasattr(owner, "__dataclass_fields__") or hasattr(owner, "__members__"):
            continue
        for name, function in list(vars(owner).items()):
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            label = f"{owner.__name__}.{name}"
            if label in STRUCTURE:
                continue
            try:
                monkeypatch.setattr(owner, name, wrap_call(function, label, component, points))
            except (AttributeError, TypeError):
                continue  # a class that does not let itself be changed


# ---- awaits --------------------------------------------------------------------------------


def place_of(coroutine: Any) -> str:
    """The innermost function of trocket in which a coroutine waits."""
    name = ""
    while coroutine is not None:
        code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if code is None:
            break
        module = frame.f_globals.get("__name__", "") if frame is not None else ""
        if module.startswith("trocket.") and ".tests." not in module:
            name = code.co_qualname
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return name


@types.coroutine
def driven(coroutine: Any, points: Points) -> Any:
    """Run a coroutine, and raise at the await that is chosen."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            if error is not None:
                raising, error = error, None
                trap = coroutine.throw(raising)
            else:
                trap = coroutine.send(value)
        except StopIteration as stop:
            return stop.value
        # A shielded checkpoint has no abort function, and cannot raise.
        can_raise = points.is_active and hasattr(trap, "abort_func")
        place = place_of(coroutine) if can_raise else ""
        if place and place not in STRUCTURE:
            error = points.reach(f"await in {place}")
            if error is not None and leaves(trap, error):
                continue
            error = None
        try:
            value = yield trap
        except BaseException as thrown:  # noqa: BLE001 - handed to the coroutine
            error = thrown


def leaves(trap: Any, error: BaseException) -> bool:
    """Leave what a task waits for, as a cancellation does; False: it must wait on."""

    def raise_it() -> None:
        raise error

    return trap.abort_func(raise_it) is trio.lowlevel.Abort.SUCCEEDED


def wrap_tasks(monkeypatch: pytest.MonkeyPatch, points: Points) -> None:
    """Drive every task of the servers."""

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        inner = function.func if isinstance(function, functools.partial) else function
        module = getattr(inner, "__module__", "")
        if not module.startswith("trocket.") or ".tests." in module:
            return function

        @functools.wraps(inner)
        async def run(*args: Any, **options: Any) -> Any:
            return await driven(function(*args, **options), points)

        return run

    start_soon, start = trio.Nursery.start_soon, trio.Nursery.start

    def faulty_start_soon(self: Any, function: Any, *args: Any, name: object = None) -> None:
        start_soon(self, wrapped(function), *args, name=name)

    async def faulty_start(self: Any, function: Any, *args: Any, name: object = None) -> Any:
        return await start(self, wrapped(function), *args, name=name)

    monkeypatch.setattr(trio.Nursery, "start_soon", faulty_start_soon)
    monkeypatch.setattr(trio.Nursery, "start", faulty_start)


@contextmanager
def injecting(points: Points) -> Iterator[None]:
    """Wrap calls and tasks inside the block; before the servers are made."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(supervision, "FAILURE_INTERVAL_S", 0.0)
        wrap_classes(monkeypatch, points)
        wrap_tasks(monkeypatch, points)
        yield
