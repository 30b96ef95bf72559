"""FilterServerKeeper: keeps `filterServerNums` filter servers running, as the broker's children.

The command is a constant: no value of the configuration or from the wire is ever part of a command
line or of the environment, and there is no shell. (RocketMQ ran `sh HOME/bin/startfsrv.sh` with
keys that any client could change by a request: CVE-2023-33246.) A child reads its keys from
standard input: lines of a properties file, then an empty one. The pipe stays open; when it closes
the child stops, so no child outlives its broker, even after a crash.

Java counterpart: createFilterServer of broker/filtersrv/FilterServerManager.java of 4.2.0. It
checks every 30 s and starts missing ones; here one is also started when another ends, and there are
never more than configured.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import trio

from ...auth.open_ports import KEY
from ...common.child import Child, OpenProcess
from ...common.config import to_properties
from ...common.filter_policy import FilterPolicy
from ...common.supervision import FailureLog, split_fatal
from ...remoting.hosts import join_address
from ...remoting.tls_config import TlsConfig, TlsMode, with_changes
from ..settings.config import BrokerConfig
from .filter_server_manager import EXPIRED_S, FilterServerManager

logger = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-m", "trocket.filtersrv", "--config-from-stdin")
"""The complete command line; see the module's text."""

FIRST_CHECK_S: Final = 5.0
CHECK_INTERVAL_S: Final = 30.0
"""Source: FilterServerManager.start of 4.2.0. The first check is delayed because filter servers
that were started by hand, or outlived a crash of the broker, register again within seconds."""

PAUSE_S_MIN: Final = 0.5
PAUSE_S_MAX: Final = CHECK_INTERVAL_S
"""Pause before a restart. It doubles each time that a child ended and none has registered, because
a filter server that cannot start must not keep a processor busy."""

STUCK_S: Final = 2 * EXPIRED_S
"""When all children run and none is registered for this long, they are restarted: each has hung, in
an operator's function for instance. While some are registered, the one that hangs is unknown."""

STOP_GRACE_S: Final = 3.0
"""From SIGTERM to SIGKILL; a filter server needs a tenth of a second. A broker that is stopped has
10 s in a container."""

LAST_LINES_S: Final = 1.0
"""How long the log of an ended child is still read: a process of the child may hold the pipe."""

LINE_SIZE_MAX: Final = 2_000
"""Bytes of a child's log line that are copied to our log; the rest of the line is left out."""

READ_SIZE: Final = 1_024
READ_PAUSE_S: Final = 0.05
LINE_PAUSE_S: Final = 0.001
"""A child that logs without end is throttled to 20 KB and 1,000 lines a second."""

LINES_MAX: Final = 500
"""Lines of children in an interval of `common/log_lines.py`: several tracebacks, which are useless
without their ends."""

_INHERITED: Final = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "JAVA_HOME"),
    *("PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONUTF8"),
    *("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Environment variables that a child inherits: enough to find Python, its packages and Java, to
write and time a log, and to fetch by https. The others often hold credentials."""

_ANYWHERE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""The address to connect to, by the wildcard address that the broker listens on."""

_ACCESS_KEYS: Final = frozenset(
    {
        *("authenticationEnabled", "authorizationEnabled"),
        *("authenticationWhitelist", "authorizationWhitelist"),
        *("innerClientAuthenticationCredentials", "brokerClusterName"),
    }
)
"""Keys that filter servers of a broker with accounts get."""

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LEVEL: Final = re.compile(r"(?:\S+ ){0,2}(DEBUG|INFO|WARNING|ERROR|CRITICAL) ")
"""The start of a child's log line: `log_to_stderr` of common/process.py."""


async def open_filter_server() -> Child:
    """Start COMMAND, which waits for its keys on standard input.

    Raises: OSError: it cannot be started.
    """
    return await trio.lowlevel.open_process(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=child_environment(os.environ),
        cwd="/",  # `python -m` imports from the working directory first
        start_new_session=True,  # a Ctrl-C goes to the broker only, which ends its children
    )


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {name: environment[name] for name in _INHERITED if name in environment}
    folders = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    path = os.pathsep.join(map(_absolute, folders))
    if path:
        kept["PYTHONPATH"] = path
    return {**kept, "PYTHONSAFEPATH": "1"}


def _absolute(path: str) -> str:
    """The path for a process with another working directory."""
    return str(Path(path).absolute())


@dataclasses.dataclass(slots=True)
class ChildConfig:
    """The addresses in a filter server's configuration; see `filtersrv/config.py`."""

    connect_which_broker: str
    filter_server_ip: str
    bind_address: str


def child_properties(config: BrokerConfig, port: int, tls: TlsConfig | None = None) -> str:
    """The keys of a filter server as lines, and the empty line that ends them.

    Values are escaped, so a value cannot set another key.

    Args:
      port: the port that the broker listens on.
      tls: the broker's, with absolute paths; None: RocketMQ's defaults.
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
    if config.allow_remote_administration:
        changed.append((KEY, "true"))
    if config.has_accounts:
        changed += [pair for pair in to_properties(config) if pair[0] in _ACCESS_KEYS]
    pairs = (*to_properties(of_server), *changed, *_tls_pairs(tls or TlsConfig()))
    return "".join(f"{key}={value}\n" for key, value in pairs) + "\n"


def _tls_pairs(tls: TlsConfig) -> list[tuple[str, str]]:
    """The settings of TLS of a filter server: the broker's, which it can always connect to."""
    if tls.mode is TlsMode.enforcing:
        tls = with_changes(tls, enable=True)
    defaults = to_properties(TlsConfig())
    return [pair for pair in to_properties(tls) if pair not in defaults]


class FilterServerKeeper:
    """Starts filter servers, and restarts them when they end.

    Lifecycle: `run` in the broker's nursery; when that is cancelled, it ends them.

    Args:
      config: the broker's; `filter_server_nums` is the wanted number, which includes filter servers
        that were started by hand.
      port: returns the port that the broker listens on.
      servers: the registered filter servers.
      open_process: starts one.
      tls: the broker's settings of TLS, which they get, too.
    """

    def __init__(
        self,
        config: BrokerConfig,
        port: Callable[[], int],
        servers: FilterServerManager,
        *,
        open_process: OpenProcess = open_filter_server,
        tls: TlsConfig | None = None,
    ) -> None:
        self._tls = tls
        self._config = config
        self._count = config.filter_server_nums
        self._port = port
        self._servers = servers
        self._open_process = open_process
        self._children: set[trio.CancelScope] = set()
        self._wake = trio.Event()
        self._arrivals = 0
        self._pause_s = PAUSE_S_MIN
        self._not_before_s = self._healthy_s = 0.0
        self._failures = FailureLog(logger)

    @property
    def child_count(self) -> int:
        """The number of children that run or are being started."""
        return len(self._children)

    def wake(self) -> None:
        """Check now, because a filter server may have ended."""
        self._wake.set()

    async def run(self) -> None:
        """Keep filter servers running until cancelled."""
        if not self._count:
            return
        await trio.sleep(FIRST_CHECK_S)
        async with trio.open_nursery() as nursery:
            while True:
                now_s = trio.current_time()
                self._end_stuck(now_s)
                if now_s >= self._not_before_s:
                    self._start_missing(nursery, now_s)
                self._wake = trio.Event()
                left_s = self._not_before_s - now_s
                with trio.move_on_after(left_s if left_s > 0 else CHECK_INTERVAL_S):
                    await self._wake.wait()

    def _start_missing(self, nursery: trio.Nursery, now_s: float) -> None:
        missing = self._count - len(self._servers.addresses)
        for _ in range(min(missing, self._count - self.child_count)):
            self._healthy_s = now_s
            scope = trio.CancelScope()
            self._children.add(scope)
            nursery.start_soon(self._keep, scope)

    def _end_stuck(self, now_s: float) -> None:
        if self._servers.addresses or self.child_count < self._count:
            self._healthy_s = now_s
        elif now_s - self._healthy_s >= STUCK_S:
            logger.error(
                "no filter server has registered for %(stuck_s)g s, so all of them are "
                "restarted; their log lines above may say why",
                {"stuck_s": STUCK_S},
            )
            for scope in self._children:
                scope.cancel()

    async def _keep(self, scope: trio.CancelScope) -> None:
        """Run one filter server until it ends."""
        try:
            with scope:
                await self._run_child()
        except OSError as error:
            logger.error(
                "a filter server could not be started, trying again: %(error)s", {"error": error}
            )
        except BaseException as error:
            fatal, other = split_fatal(error)
            if other is None:
                raise
            self._failures.note("running a filter server", "Another one is started", other)
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
        properties = child_properties(self._config, self._port(), self._tls)
        with trio.CancelScope(shield=True):  # a started process must reach the code that ends it
            child = await self._open_process()
        logger.info("filter server %(pid)d started", {"pid": child.pid})
        reading = trio.CancelScope(shield=True)  # also reads what it logs while it stops
        read_all = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_log_lines, child, reading, read_all)
            try:
                await _send_keys(child, properties)
                status = await child.wait()
                logger.warning(
                    "filter server %(pid)d ended: %(reason)s",
                    {"pid": child.pid, "reason": _reason(status)},
                )
            finally:
                with trio.CancelScope(shield=True):
                    await _end(child)
                    with trio.move_on_after(LAST_LINES_S):
                        await read_all.wait()
                reading.cancel()


async def _send_keys(child: Child, properties: str) -> None:
    assert child.stdin is not None
    try:
        await child.stdin.send_all(properties.encode("ascii"))
    except trio.BrokenResourceError:  # it has ended; its log has the reason
        logger.debug("filter server %(pid)d did not read its keys", {"pid": child.pid})


async def _end(child: Child) -> None:
    assert child.stdin is not None
    await child.stdin.aclose()
    if child.returncode is None:
        child.terminate()
        with trio.move_on_after(STOP_GRACE_S):
            await child.wait()
    if child.returncode is None:
        logger.warning(
            "filter server %(pid)d is killed: it did not stop within %(stop_grace_s)g s",
            {"pid": child.pid, "stop_grace_s": STOP_GRACE_S},
        )
        child.kill()
        await child.wait()


def _reason(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


async def _log_lines(child: Child, reading: trio.CancelScope, read_all: trio.Event) -> None:
    """Copy a child's standard error to our log."""
    assert child.stderr is not None
    lines = ChildLog(child.pid)
    with reading:
        async with child.stderr:
            try:
                while data := await child.stderr.receive_some(READ_SIZE):
                    count = lines.receive_data(bytes(data))
                    await trio.sleep(READ_PAUSE_S + LINE_PAUSE_S * count)
            except trio.BrokenResourceError as error:
                logger.warning(
                    "the log of filter server %(pid)d cannot be read: %(error)s",
                    {"pid": child.pid, "error": error},
                )
    lines.receive_eof()
    read_all.set()


class ChildLog:
    """Copies the lines of one child to our log, each with its level.

    Args:
      pid: the child's, part of each line.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._begun = b""

    def receive_data(self, data: bytes) -> int:
        """Process output of the child, in pieces of any size.

        Returns: the number of completed lines.
        """
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._begun or line:
                self._log(self._begun + line)
            self._begun = b""
        self._begun = (self._begun + rest)[: LINE_SIZE_MAX + 1]
        return len(lines)

    def receive_eof(self) -> None:
        """Log an incomplete last line at the end of the output."""
        if self._begun:
            self._log(self._begun)
        self._begun = b""

    def _log(self, line: bytes) -> None:
        cut = "…" if len(line) > LINE_SIZE_MAX else ""
        text = _CONTROLS.sub("?", line[:LINE_SIZE_MAX].decode("utf-8", "replace"))
        level = _LEVEL.match(text)
        number = logging.getLevelNamesMapping()[level[1]] if level else logging.WARNING
        logger.log(
            number,
            "filter server %(pid)d: %(text)s%(cut)s",
            {"pid": self._pid, "text": text, "cut": cut},
            extra={"lines_max": LINES_MAX},
        )
