"""Keeps `filterServerNums` filter servers alive, as child processes of the broker.

What is run is a constant: no value of the configuration, and none from the wire, is ever part of a
command line or of the environment, and there is no shell. (RocketMQ ran `sh HOME/bin/startfsrv.sh`
with keys that anybody could change by a request: CVE-2023-33246.) A child learns its keys from
its standard input: lines of a properties file, then an empty one. The pipe stays open, and its end
is a child's order to stop, so none outlives its broker, however that ends.

Java counterpart: createFilterServer of broker/filtersrv/FilterServerManager.java of 4.2.0. It looks
every 30 s and starts what is missing; here also when one ends, and never more than it keeps.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import trio

from ..common.config import to_properties
from ..common.filter_policy import FilterPolicy
from ..common.supervision import FailureLog, split_fatal
from ..remoting.hosts import join_address
from .config import BrokerConfig
from .filter_server_manager import EXPIRED_S, FilterServerManager

logger = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-m", "trocket.filtersrv", "--config-from-stdin")
"""All of it: see above."""

FIRST_LOOK_S: Final = 5.0
LOOK_INTERVAL_S: Final = 30.0
"""Source: FilterServerManager.start of 4.2.0. The first look comes late because filter servers that
were started by hand, or outlived a crash of the broker, come back within seconds."""

PAUSE_S_MIN: Final = 0.5
PAUSE_S_MAX: Final = LOOK_INTERVAL_S
"""Before another one is started when one has ended: twice as long for each that ended without any
having registered, because what cannot start must not keep a processor busy."""

STUCK_S: Final = 2 * EXPIRED_S
"""When all of ours run and for so long none is registered, they are ended: each has hung, in a
function of the operator's for instance. When some are registered nobody knows which one hangs."""

STOP_GRACE_S: Final = 3.0
"""From SIGTERM to SIGKILL; a filter server needs a tenth of a second. A broker that is stopped has
10 s in a container."""

LAST_LINES_S: Final = 1.0
"""How long the log of a child that has ended is read on: a process of its own may hold the pipe."""

LINE_SIZE_MAX: Final = 2_000
"""Bytes of a line of a child that get into our log; the rest of the line is left out."""

READ_SIZE: Final = 1_024
READ_PAUSE_S: Final = 0.05
LINE_PAUSE_S: Final = 0.001
"""A child that logs without end waits, and the broker does not: 20 KB and 1,000 lines a second."""

_INHERITED: Final = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "JAVA_HOME"),
    *("PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONUTF8"),
    *("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""What a child's environment has of ours: enough to find Python, its packages and Java, to write
and time a log, and to fetch by https. Credentials are often in the rest."""

_ANYWHERE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where to connect to what listens on all addresses."""

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LEVEL: Final = re.compile(r"(?:\S+ ){0,2}(DEBUG|INFO|WARNING|ERROR|CRITICAL) ")
"""How a child's log line begins: `log_to_stderr` of common/process.py."""


class Child(Protocol):
    """What is needed of a process; `trio.Process` is one."""

    @property
    def pid(self) -> int:
        """Its number."""

    @property
    def stdin(self) -> trio.abc.SendStream | None:
        """The near end of its standard input."""

    @property
    def stderr(self) -> trio.abc.ReceiveStream | None:
        """The near end of its standard error."""

    @property
    def returncode(self) -> int | None:
        """Its exit status, or minus the signal that ended it; None: it runs."""

    async def wait(self) -> int:
        """Wait until it has ended, and reap it."""

    def terminate(self) -> None:
        """Send SIGTERM; nothing when it has ended."""

    def kill(self) -> None:
        """Send SIGKILL; nothing when it has ended."""


OpenProcess = Callable[[], Awaitable[Child]]
"""Starts a filter server. Raises OSError."""


async def open_filter_server() -> Child:
    """Start the process that COMMAND says, which waits for its keys.

    Raises: OSError: it cannot be started.
    """
    return await trio.lowlevel.open_process(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=child_environment(os.environ),
        cwd="/",  # `python -m` imports from the working directory before all others
        start_new_session=True,  # a Ctrl-C is the broker's, which ends its children itself
    )


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a filter server.

    Args:
      environment: the broker's.
    """
    kept = {name: environment[name] for name in _INHERITED if name in environment}
    folders = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    path = os.pathsep.join(map(_absolute, folders))
    if path:
        kept["PYTHONPATH"] = path
    return {**kept, "PYTHONSAFEPATH": "1"}


def _absolute(path: str) -> str:
    """The same for a process in another working directory."""
    return str(Path(path).absolute())


@dataclasses.dataclass(slots=True)
class ChildConfig:
    """The keys of a filter server that say where it is; see `filtersrv/config.py`."""

    connect_which_broker: str
    filter_server_ip: str
    bind_address: str


def child_properties(config: BrokerConfig, port: int) -> str:
    """The keys of a filter server as lines, and the empty line behind them.

    Whatever a value holds, it is the value of its own key.

    Args:
      config: the broker's.
      port: where it listens.
    """
    bound = config.bind_address.strip("[]")
    of_server = ChildConfig(
        connect_which_broker=join_address(_ANYWHERE.get(bound, bound), port),
        filter_server_ip=config.broker_ip1,
        bind_address=config.bind_address,
    )
    names = [field.name for field in dataclasses.fields(FilterPolicy)]
    policy = FilterPolicy(**{name: getattr(config, name) for name in names})
    if policy.filter_classes_file:
        policy.filter_classes_file = _absolute(policy.filter_classes_file)
    defaults = to_properties(FilterPolicy())
    changed = [pair for pair in to_properties(policy) if pair not in defaults]
    pairs = (*to_properties(of_server), *changed)
    return "".join(f"{key}={value}\n" for key, value in pairs) + "\n"


class FilterServerKeeper:
    """Starts filter servers, and starts them again.

    Lifecycle: `run` in the broker's nursery; when that is cancelled, it ends them.

    Args:
      config: the broker's; `filter_server_nums` is how many there are to be, those that others
        started included.
      port: gives where the broker listens.
      servers: those that are registered.
      open_process: starts one.
    """

    def __init__(
        self,
        config: BrokerConfig,
        port: Callable[[], int],
        servers: FilterServerManager,
        *,
        open_process: OpenProcess = open_filter_server,
    ) -> None:
        self._config = config
        self._count = config.filter_server_nums
        self._port = port
        self._servers = servers
        self._open_process = open_process
        self._children: set[trio.CancelScope] = set()
        self._wake = trio.Event()
        self._arrivals = 0
        self._pause_s = PAUSE_S_MIN
        self._not_before_s = self._well_s = 0.0
        self._failures = FailureLog(logger)

    @property
    def child_count(self) -> int:
        """How many of ours run, or are about to."""
        return len(self._children)

    def wake(self) -> None:
        """Look now: a filter server may have gone."""
        self._wake.set()

    async def run(self) -> None:
        """Keep them alive until cancelled."""
        if not self._count:
            return
        await trio.sleep(FIRST_LOOK_S)
        async with trio.open_nursery() as nursery:
            while True:
                now_s = trio.current_time()
                self._end_stuck(now_s)
                if now_s >= self._not_before_s:
                    self._start_missing(nursery, now_s)
                self._wake = trio.Event()
                left_s = self._not_before_s - now_s
                with trio.move_on_after(left_s if left_s > 0 else LOOK_INTERVAL_S):
                    await self._wake.wait()

    def _start_missing(self, nursery: trio.Nursery, now_s: float) -> None:
        missing = self._count - len(self._servers.addresses)
        for _ in range(min(missing, self._count - self.child_count)):
            self._well_s = now_s
            scope = trio.CancelScope()
            self._children.add(scope)
            nursery.start_soon(self._keep, scope)

    def _end_stuck(self, now_s: float) -> None:
        if self._servers.addresses or self.child_count < self._count:
            self._well_s = now_s
        elif now_s - self._well_s >= STUCK_S:
            logger.error("no filter server registers: all of them are started again")
            for scope in self._children:
                scope.cancel()

    async def _keep(self, scope: trio.CancelScope) -> None:
        """Run one filter server until it ends."""
        try:
            with scope:
                await self._run_child()
        except OSError as error:
            logger.error("a filter server could not be started: %s", error)
        except BaseException as error:
            fatal, other = split_fatal(error)
            if other is None:
                raise
            self._failures.note("keeping a filter server", "Another one is started", other)
            if fatal is not None:
                raise fatal from None
        finally:
            self._children.discard(scope)
            if self._servers.arrivals != self._arrivals:
                self._arrivals = self._servers.arrivals
                self._pause_s = PAUSE_S_MIN
            self._not_before_s = trio.current_time() + self._pause_s
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
            self.wake()

    async def _run_child(self) -> None:
        properties = child_properties(self._config, self._port())
        with trio.CancelScope(shield=True):  # started means that somebody ends it
            child = await self._open_process()
        logger.info("filter server %d started", child.pid)
        reading = trio.CancelScope(shield=True)  # what it says while it stops, too
        read_all = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_log_lines, child, reading, read_all)
            try:
                await _tell(child, properties)
                status = await child.wait()
                logger.warning("filter server %d ended: %s", child.pid, _reason(status))
            finally:
                with trio.CancelScope(shield=True):
                    await _end(child)
                    with trio.move_on_after(LAST_LINES_S):
                        await read_all.wait()
                reading.cancel()


async def _tell(child: Child, properties: str) -> None:
    assert child.stdin is not None
    try:
        await child.stdin.send_all(properties.encode("ascii"))
    except trio.BrokenResourceError:  # it has ended; why is in its log
        logger.debug("filter server %d did not read its keys", child.pid)


async def _end(child: Child) -> None:
    """End a process and reap it."""
    assert child.stdin is not None
    await child.stdin.aclose()
    if child.returncode is None:
        child.terminate()
        with trio.move_on_after(STOP_GRACE_S):
            await child.wait()
    if child.returncode is None:
        logger.warning("filter server %d does not stop, and is killed", child.pid)
        child.kill()
        await child.wait()


def _reason(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


async def _log_lines(child: Child, reading: trio.CancelScope, read_all: trio.Event) -> None:
    """Put what a child writes to standard error into our log."""
    assert child.stderr is not None
    lines = ChildLog(child.pid)
    with reading:
        async with child.stderr:
            try:
                while data := await child.stderr.receive_some(READ_SIZE):
                    count = lines.receive_data(bytes(data))
                    await trio.sleep(READ_PAUSE_S + LINE_PAUSE_S * count)
            except trio.BrokenResourceError as error:
                logger.warning("the log of filter server %d is lost: %s", child.pid, error)
    lines.receive_eof()
    read_all.set()


class ChildLog:
    """The lines of one child as records of our log, each with its own level.

    Args:
      pid: named in each of them.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._begun = b""

    def receive_data(self, data: bytes) -> int:
        """Take in what the child wrote, cut anywhere.

        Returns: how many lines ended in it.
        """
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._begun or line:
                self._log(self._begun + line)
            self._begun = b""
        self._begun = (self._begun + rest)[: LINE_SIZE_MAX + 1]
        return len(lines)

    def receive_eof(self) -> None:
        """It writes no more."""
        if self._begun:
            self._log(self._begun)
        self._begun = b""

    def _log(self, line: bytes) -> None:
        cut = "…" if len(line) > LINE_SIZE_MAX else ""
        text = _CONTROLS.sub("?", line[:LINE_SIZE_MAX].decode("utf-8", "replace"))
        level = _LEVEL.match(text)
        number = logging.getLevelNamesMapping()[level[1]] if level else logging.WARNING
        logger.log(number, "filter server %d: %s%s", self._pid, text, cut)
