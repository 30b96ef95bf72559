"""`trocket up`: name server and broker in one process, ready for the official clients.

With `--masters`, `--slaves` or `--brokers` each broker runs in a separate process: `up_cluster.py`.

Ready means: both listen, the broker is registered, and a client's requests are answered
(`self_check`). A broker whose store accepts no messages (read-only, disk full) is still served,
with a notice.
On a stop the broker ends first, so that it can still unregister from the name server.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...broker.settings.config import BrokerConfig
from ...common import process
from ...common.config import ConfigError
from ...common.terminal import red
from ...disk.errors import StoreError
from ...namesrv.config import NamesrvConfig
from ...native import choice
from ...remoting.hosts import join_address
from ...store.config import MessageStoreConfig
from ..console_extra import NOT_INSTALLED, is_installed
from ..error_lines import errors_as_json, say_error
from . import exposure as up_exposure
from . import test_clock
from .config import Configured, UpTls, read_cluster, read_one
from .errors import ConsoleError
from .flags import PROGRAM
from .plan import Shape, reachable, shape_of, usage
from .ready import announce

if TYPE_CHECKING:
    from collections.abc import Sequence

    import trio

    from ...auth.server_access import ServerAccess
    from ...broker.controller import BrokerController
    from ...common.clock import Clock
    from ...disk.os_disk import Disk
    from .console import ConsoleChild
    from .control import Control


def run(options: argparse.Namespace) -> int:
    """Run both with the parsed flags of `PROGRAM` until SIGTERM or SIGINT; return the status."""
    errors_as_json.set(options.json)
    with test_clock.folder_of(options):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        shape = shape_of(
            options.masters,
            options.slaves,
            options.brokers,
            is_sync=options.is_sync,
            is_failover=options.is_failover,
        )
        configured = read_cluster(options, shape) if shape is not None else read_one(options)
    except up_exposure.ExposedError as error:
        if options.json:
            _report(PROGRAM.name, str(error))
        else:
            print(red(f"{PROGRAM.name}: {error}", sys.stderr), file=sys.stderr, flush=True)
        return process.EXIT_FAILED if options.print_all else process.EXIT_USAGE
    except ConfigError as error:
        return process.refuse(PROGRAM.name, error, is_check=options.print_all, report=_report)
    if options.print_all:
        _print(configured)
        return process.EXIT_OK
    if options.console and not is_installed():
        _report(PROGRAM.name, NOT_INSTALLED)
        return process.EXIT_FAILED
    process.log_to_stderr(options.log_level, options.log_format, configured.warnings)
    if shape is not None:
        return _serve_cluster(options, configured, shape)
    up = new_up(options, configured)
    return process.serve(
        up.run,
        program=PROGRAM.name,
        expected=(StoreError, SelfCheckError, ConsoleError),
        with_parent=options.exit_with_parent,
        report=_report,
    )


def new_up(options: argparse.Namespace, configured: Configured) -> Up:
    """The servers of one process, from their flags and configurations."""
    control = None
    if options.test_clock:
        from .control import Control

        folders = test_clock.folders(Path(options.home), configured.store)
        control = Control(options.control_port or 0, () if options.memory else folders)
    is_saved = options.config_file and not options.memory
    return Up(
        configured.namesrv, configured.broker, configured.store, configured.tls,
        as_json=options.json, home=options.home, in_memory=options.memory,
        config_path=str(Path(options.config_file).absolute()) if is_saved else "",
        console=_console(options, configured), control=control, ready_file=options.ready_file,
    )  # fmt: skip


def _console(options: argparse.Namespace, configured: Configured) -> ConsoleChild | None:
    if not options.console:
        return None
    from .console import ConsoleChild

    is_tls = configured.tls.check is not None
    return ConsoleChild(options.console_port, configured.broker_tls if is_tls else None)


def _report(program: str, line: str) -> None:
    say_error(line, program=program)


def _print(configured: Configured) -> None:
    """Print the configurations as `-p` of each server does, below a heading, and the warnings."""
    process.print_warnings(PROGRAM.name, configured.warnings)
    for name, configs in configured.sections():
        process.say(f"# the configuration of {name}")
        process.print_configuration(configs)


def _serve_cluster(options: argparse.Namespace, configured: Configured, shape: Shape) -> int:
    from .cluster import ClusterError, UpCluster

    namesrv, broker = configured.namesrv, configured.broker

    async def run(stop: trio.CancelScope) -> None:
        cluster = UpCluster(
            namesrv,
            configured.members,
            shape,
            cluster=broker.broker_cluster_name,
            further_namesrv=broker.namesrv_addresses,
            log_level=options.log_level,
            log_format=options.log_format,
            as_json=options.json,
            home=configured.store.store_path_root_dir,
            tls=configured.tls.namesrv,
            check_tls=configured.tls.check,
            console=_console(options, configured),
            ready_file=options.ready_file,
        )
        await cluster.run(stop)

    return process.serve(
        run,
        program=PROGRAM.name,
        expected=(StoreError, ClusterError, ConsoleError),
        with_parent=options.exit_with_parent,
        report=_report,
    )


def _metrics_listener(config: BrokerConfig) -> socket.socket | None:
    """The socket for metrics, on a free port if the usual one is in use; None: they are off.

    Raises: OSError: no port can be used.
    """
    from ...remoting.metrics.listening import open_metrics_listener

    try:
        return open_metrics_listener(config)
    except OSError as error:
        process.logger.warning("metrics are served on a free port: %s", error)
        config.metrics_prom_exporter_port = 0
        return open_metrics_listener(config)


class SelfCheckError(Exception):
    """The servers run, but the self-check's requests were not answered as they should."""


class Up:
    """A name server and a broker in one process.

    Args:
      namesrv, broker, store: whole configurations; a port 0 takes any free one.
      tls: of both servers.
      as_json: when ready, print one JSON object, and nothing else on standard output.
      home: the data folder, to be printed.
      in_memory: keep all files in this process's memory.
      config_path: the file of the broker, absolute, where changed settings are saved; "": none.
      console: is started when both are ready; None: there is none.
      control: has the clock and the disk, and serves its port; None: the machine's are used.
      ready_file: gets the line of JSON when both are ready; None: there is none.
    """

    def __init__(
        self,
        namesrv: NamesrvConfig,
        broker: BrokerConfig,
        store: MessageStoreConfig,
        tls: UpTls,
        *,
        as_json: bool,
        home: str,
        in_memory: bool = False,
        config_path: str = "",
        console: ConsoleChild | None = None,
        control: Control | None = None,
        ready_file: str | None = None,
    ) -> None:
        self._namesrv = namesrv
        self._broker = broker
        self._store = store
        self._tls = tls
        self._as_json = as_json
        self._home = home
        self._in_memory = in_memory
        self._config_path = config_path
        self._metrics = ""
        self._console = console
        self._console_address = ""
        self._control = control
        self._ready_file = ready_file
        self._namesrv_access: ServerAccess | None = None

    async def run(self, stop: trio.CancelScope) -> None:
        """Run both until `stop` is cancelled.

        Raises: OSError, StoreError: a server could not start; SelfCheckError: the self-check
          failed; ConsoleError: the console did not start; or the error of a server that failed.
        """
        import trio

        from ...broker.controller import BrokerController
        from ...common.clock import SystemClock
        from ...disk.memory_disk import MemoryDisk
        from ...disk.os_disk import OsDisk
        from ...namesrv.controller import NamesrvController
        from ...remoting.opener import split_address
        from ...remoting.turn import Turn

        turn, control = Turn(), self._control
        clock: Clock = SystemClock()
        disk: Disk = MemoryDisk() if self._in_memory else OsDisk()
        if control is not None:
            clock, disk = control.drive(turn)
        # After `stop` the console ends, then the broker, which unregisters at the name server.
        async with trio.open_nursery() as outer:
            namesrv = NamesrvController(
                self._namesrv, clock=clock, disk=disk, turn=turn, tls=self._tls.namesrv
            )
            self._namesrv_access = namesrv.access
            await outer.start(namesrv.run)
            namesrv_port = split_address(namesrv.listen_addresses[0])[1]
            ours = join_address(reachable(self._namesrv.bind_address), namesrv_port)
            self._broker.namesrv_addr = ";".join([ours, *self._broker.namesrv_addresses])
            metrics = _metrics_listener(self._broker)
            if metrics is not None:
                bound = metrics.getsockname()
                scheme = "https" if self._broker.metrics_tls_enable else "http"
                self._metrics = f"{scheme}://{join_address(bound[0], bound[1])}/metrics"
            broker = BrokerController(
                self._broker,
                self._store,
                clock=clock,
                disk=disk,
                turn=turn,
                metrics_listener=metrics,
                config_path=self._config_path,
                tls=self._tls.broker,
                clients_ms=None if control is None else control.clients_ms,
            )
            async with trio.open_nursery() as inner:
                try:
                    with stop:
                        await inner.start(broker.run)
                        if control is not None:
                            await inner.start(control.serve, namesrv, broker, ours)
                        await self._become_ready(ours, broker, inner)
                        process.settle()
                        await trio.sleep_forever()
                finally:
                    if self._console is not None:
                        with trio.CancelScope(shield=True):
                            await self._console.stop()
                inner.cancel_scope.cancel()
            outer.cancel_scope.cancel()

    async def _become_ready(
        self, namesrv: str, broker: BrokerController, nursery: trio.Nursery
    ) -> None:
        from ...remoting.opener import split_address

        advertised = broker.broker_addr
        port = split_address(advertised)[1]
        here = join_address(reachable(self._broker.bind_address), port)
        try:
            check_ms, warning = await self._check(namesrv, here, broker)
        except SelfCheckError:
            if not broker.sends_refused:
                raise
            # Meanwhile the broker found the disk too full: check again, without a send.
            check_ms, warning = await self._check(namesrv, here, broker)
        refused = broker.sends_refused
        if self._console is not None:
            self._console_address = await self._console.start(namesrv, broker.super_account)
            nursery.start_soon(self._console.watch)
        if warning:
            process.logger.warning(warning)
        host = (
            self._broker.broker_ip1 if here != advertised else reachable(self._namesrv.bind_address)
        )
        self._announce(
            join_address(host, split_address(namesrv)[1]),
            advertised,
            broker.listen_addresses,
            refused or self._checked(broker, check_ms),
            refused,
        )

    def _checked(self, broker: BrokerController, check_ms: float) -> str:
        if self._may_send(broker):
            return f"route, send and pull answered in {check_ms:.0f} ms"
        return "the route was answered; no send was tried, as no account may do everything"

    @staticmethod
    def _may_send(broker: BrokerController) -> bool:
        """Whether this process has an account, or needs none, to send to its broker."""
        return broker.super_account is not None or not broker.has_access_control

    async def _check(self, namesrv: str, here: str, broker: BrokerController) -> tuple[float, str]:
        from ...remoting.errors import RemotingError
        from ..self_check import check

        takes_sends = not broker.sends_refused and self._may_send(broker)
        try:
            return await check(
                namesrv,
                here,
                broker.broker_addr,
                takes_sends=takes_sends,
                accounts=(
                    self._namesrv_access.super_account if self._namesrv_access else None,
                    broker.super_account,
                ),
                tls=self._tls.check,
            )
        except RemotingError as error:
            raise SelfCheckError(f"the self-check failed: {error}") from error

    def _announce(
        self, namesrv: str, advertised: str, listening: Sequence[str], checked: str, refused: str
    ) -> None:
        facts: dict[str, Any] = {
            "ready": True,
            "seconds": round(process.seconds_since_start(), 3),
            "version": __version__,
            "pid": os.getpid(),
            "namesrv": namesrv,
            "broker": advertised,
            "listening": list(listening),
            "home": self._home,
            "store": self._store.store_path_root_dir,
            "memory": self._in_memory,
            "metrics": self._metrics,
            "console": self._console_address,
            **({} if self._control is None else {"control": self._control.url}),
            "sendsRefused": refused,
            "hotPath": choice.description,
        }
        listening_text = ", ".join(listening)
        console = f"  console      {self._console_address}\n" if self._console_address else ""
        if self._control is not None:
            console += f"  control      {self._control.url}\n"
        data = "in memory, gone at the end" if self._in_memory else facts["store"]
        text = (
            f"trocket {__version__}, process {facts['pid']}\n"
            f"  name server  {namesrv}\n"
            f"  broker       {advertised}  {self._broker.broker_name} of "
            f"{self._broker.broker_cluster_name}, listening on {listening_text}\n"
            f"  data         {data}\n"
            f"  metrics      {self._metrics or 'none'}\n"
            f"{console}"
            f"  self-check   {checked}\n"
            f"  hot path     {choice.description}\n"
            "\n"
            f"{usage(namesrv)}\n"
            f"ready {facts['seconds']:.2f} s after the start; Ctrl-C or SIGTERM stops"
        )
        announce(facts, text, as_json=self._as_json, ready_file=self._ready_file)
