"""Simulated processes: who a task belongs to, SIGSTOP, and one order of tasks for one seed.

trio runs the tasks of one moment in a random order, and so does the simulation, but by its seed.
`runq` is trio's private queue of tasks that can run now; `test_process.py` notices when it changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from ...trio_order import run_by

if TYPE_CHECKING:
    from .network import Endpoint

RUNNING: ContextVar[Process | None] = ContextVar("RUNNING", default=None)
"""The process that a task belongs to; tasks that it starts inherit it."""


class Process:
    """One run of a program on a machine.

    Args:
      machine: its name; clients are machines of their own.
      host: the machine's address.

    Attributes:
      is_alive: not killed; nothing a dead one sends arrives, whatever its tasks still do.
      is_stopped: as by SIGSTOP.
      endpoints: its open connections, in the order in which they were made.
      scope: cancelled, it ends.
      ended: set when it has.
    """

    def __init__(self, machine: str, host: str) -> None:
        self.machine = machine
        self.host = host
        self.is_alive = True
        self.is_stopped = False
        self.endpoints: dict[Endpoint, None] = {}
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.nursery: trio.Nursery
        self._held: list[trio.lowlevel.Task] = []
        self._stopped_s = 0.0
        self._standstills: list[tuple[float, float]] = []

    def start_soon(self, function: Callable[..., Awaitable[object]], *arguments: Any) -> None:
        """Run a task of this process."""
        token = RUNNING.set(self)
        try:
            self.nursery.start_soon(function, *arguments)
        finally:
            RUNNING.reset(token)

    def hold(self, task: trio.lowlevel.Task) -> None:
        """Keep a task that could run until the process goes on."""
        self._held.append(task)

    def stop(self) -> None:
        """SIGSTOP: no task of it runs any more; what is sent to it waits."""
        self.is_stopped = True
        self._stopped_s = trio.current_time()

    def go_on(self) -> None:
        """SIGCONT."""
        if self.is_stopped:
            self.is_stopped = False
            self._standstills.append((self._stopped_s, trio.current_time()))
            held, self._held = self._held, []
            trio._core._run.GLOBAL_RUN_CONTEXT.runner.runq.extend(held)
            for endpoint in list(self.endpoints):
                endpoint.notify()

    def began_s(self, ran_s: float) -> float:
        """Since when it has run for so long, not counting when it stood still; it does not now."""
        moment_s = trio.current_time() - ran_s
        for stopped_s, went_on_s in reversed(self._standstills):
            if went_on_s > moment_s:
                moment_s -= went_on_s - stopped_s
        return moment_s


class RunQueue(deque[trio.lowlevel.Task]):
    """trio's queue of tasks that can run, without those of stopped processes."""

    def append(self, task: trio.lowlevel.Task) -> None:
        """Have a task run in the next round, or when its process goes on."""
        process = task.context.get(RUNNING)
        if process is not None and process.is_stopped:
            process.hold(task)
        else:
            super().append(task)


def run(main: Callable[[], Awaitable[None]], seed: str) -> None:
    """`trio.run` in virtual time; what happens depends on the seed only.

    Raises: whatever `main` raises, the first of it without the groups around.
    """

    async def with_own_queue() -> None:
        runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner
        runner.runq = RunQueue(runner.runq)
        await main()

    run_by(seed, with_own_queue, trio.testing.MockClock(autojump_threshold=0))
