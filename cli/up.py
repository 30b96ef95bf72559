"""`trocket up`: name server and broker in one process, ready for the official clients.

With `--masters`, `--slaves` or `--brokers` each broker runs in a separate process: `up_cluster.py`.

Ready means: both listen, the broker is registered, and a client's requests are answered
(`self_check`). A broker whose store accepts no messages (read-only, disk full) is still served,
with a notice.
On a stop the broker ends first, so that it can still unregister from the name server.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import __version__
from ..broker.config import BrokerConfig, with_machine
from ..broker.config_checks import read_broker_config
from ..common import process
from ..common.config import ConfigError, Entry
from ..common.metrics_keys import MetricsExporterType
from ..common.terminal import red
from ..namesrv.config import NamesrvConfig, read_namesrv_config
from ..native import choice
from ..remoting.hosts import join_address
from ..remoting.tls_config import TlsConfig, TlsMode, check_metrics_tls, split_tls, with_changes
from ..remoting.tls_files import read_tls_config
from ..store.config import MessageStoreConfig
from ..store.errors import StoreError
from . import up_exposure
from .up_flags import PROGRAM
from .up_home import default_home, refuse_source_folder
from .up_plan import ConfigFile, Shape, plan, reachable, shape_of, usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import trio

    from ..auth.server_access import ServerAccess
    from ..broker.controller import BrokerController
    from ..remoting.tls_client import ClientTls
    from ..remoting.tls_settings import Tls

EVERYWHERE = ("0.0.0.0", "::")
MEMORY_HOME = "/trocket"
"""The data folder of a broker whose files are in memory."""
MEMORY_LOG_FILE_SIZE = 16 * 1024 * 1024
"""Bytes of a commit log file in memory: room for some messages of the largest size, 4 MiB."""
MEMORY_QUEUE_FILE_SIZE = 2_000 * 20
MEMORY_INDEX_SLOTS = 10_000
"""Sizes that take a MiB at most until there are messages."""


def run(options: argparse.Namespace) -> int:
    """Run both with the parsed flags of `PROGRAM` until SIGTERM or SIGINT; return the status."""
    try:
        shape = shape_of(options.masters, options.slaves, options.brokers, is_sync=options.is_sync)
        if shape is not None:
            return _serve_cluster(options, shape)
        if options.own_files:
            raise ConfigError("--broker-config needs several brokers: add --masters 2")
        if options.memory and options.home:
            raise ConfigError("--memory keeps no files: give it without --home")
        configured = _configured(options, "store")
        tls = _Tls.of(configured)
    except up_exposure.ExposedError as error:
        print(red(f"{PROGRAM.name}: {error}", sys.stderr), file=sys.stderr, flush=True)
        return process.EXIT_USAGE
    except ConfigError as error:
        return process.refuse(PROGRAM.name, error)
    process.log_to_stderr(options.log_level, options.log_format, configured.warnings)
    is_saved = options.config_file and not options.memory
    up = Up(
        configured.namesrv, configured.broker, configured.store, tls,
        as_json=options.json, home=options.home, in_memory=options.memory,
        config_path=str(Path(options.config_file).absolute()) if is_saved else "",
    )  # fmt: skip
    return process.serve(up.run, program=PROGRAM.name, expected=(StoreError, SelfCheckError))


def _serve_cluster(options: argparse.Namespace, shape: Shape) -> int:
    """Raises: ConfigError: the flags or the files cannot be used."""
    if options.memory:
        raise ConfigError("--memory is for one broker: leave out --masters, --slaves, --brokers")
    configured = _configured(options, "")
    namesrv, broker, store = configured.namesrv, configured.broker, configured.store
    tls = _Tls.of(configured)
    entries = process.read_entries(options.config_file)
    if configured.broker_tls.enable:
        entries.append(Entry("tls.enable", "true", 0))
    common = ConfigFile(options.config_file or "", entries)
    own = {}
    for text in options.own_files:
        name, _, path = text.partition("=")
        if not path:
            raise ConfigError(f"--broker-config {text}: write NAME=FILE, such as broker-a=a.conf")
        own[name] = ConfigFile(path, process.read_entries(path))
    members, own_warnings = plan(shape, broker, store, common, own)
    process.log_to_stderr(
        options.log_level, options.log_format, [*configured.warnings, *own_warnings]
    )
    from .up_cluster import ClusterError, UpCluster

    async def run(stop: trio.CancelScope) -> None:
        cluster = UpCluster(
            namesrv,
            members,
            shape,
            cluster=broker.broker_cluster_name,
            further_namesrv=broker.namesrv_addresses,
            log_level=options.log_level,
            log_format=options.log_format,
            as_json=options.json,
            home=store.store_path_root_dir,
            tls=tls.namesrv,
            check_tls=tls.check,
        )
        await cluster.run(stop)

    return process.serve(run, program=PROGRAM.name, expected=(StoreError, ClusterError))


def _metrics_listener(config: BrokerConfig) -> socket.socket | None:
    """The socket for metrics, on a free port if the usual one is in use; None: they are off.

    Raises: OSError: no port can be used.
    """
    from ..remoting.metrics.listening import open_metrics_listener

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
    """

    def __init__(
        self,
        namesrv: NamesrvConfig,
        broker: BrokerConfig,
        store: MessageStoreConfig,
        tls: _Tls,
        *,
        as_json: bool,
        home: str,
        in_memory: bool = False,
        config_path: str = "",
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
        self._namesrv_access: ServerAccess | None = None

    async def run(self, stop: trio.CancelScope) -> None:
        """Run both until `stop` is cancelled.

        Raises: OSError, StoreError: a server could not start; SelfCheckError: the self-check
          failed; or the error of a server that failed.
        """
        import trio

        from ..broker.controller import BrokerController
        from ..namesrv.controller import NamesrvController
        from ..remoting.client import split_address
        from ..remoting.turn import Turn
        from ..store.clock import SystemClock
        from ..store.disk.memory_disk import MemoryDisk
        from ..store.disk.os_disk import OsDisk

        clock, turn = SystemClock(), Turn()
        # `stop` cancels only the inner nursery: the broker unregisters at the name server.
        async with trio.open_nursery() as outer:
            disk = MemoryDisk() if self._in_memory else OsDisk()
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
            )
            with stop:
                async with trio.open_nursery() as inner:
                    await inner.start(broker.run)
                    await self._become_ready(ours, broker)
                    process.settle()
                    await trio.sleep_forever()
            outer.cancel_scope.cancel()

    async def _become_ready(self, namesrv: str, broker: BrokerController) -> None:
        from ..remoting.client import split_address

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
        from ..remoting.errors import RemotingError
        from .self_check import check

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
            "sendsRefused": refused,
            "hotPath": choice.description,
        }
        if self._as_json:
            process.say(json.dumps(facts))
            return
        listening_text = ", ".join(listening)
        data = "in memory, gone at the end" if self._in_memory else facts["store"]
        process.say(
            f"trocket {__version__}, process {facts['pid']}\n"
            f"  name server  {namesrv}\n"
            f"  broker       {advertised}  {self._broker.broker_name} of "
            f"{self._broker.broker_cluster_name}, listening on {listening_text}\n"
            f"  data         {data}\n"
            f"  metrics      {self._metrics or 'none'}\n"
            f"  self-check   {checked}\n"
            f"  hot path     {choice.description}\n"
            "\n"
            f"{usage(namesrv)}\n"
            f"ready {facts['seconds']:.2f} s after the start; Ctrl-C or SIGTERM stops"
        )


class _Configured(NamedTuple):
    """The settings of the servers, and the warnings about their files."""

    namesrv: NamesrvConfig
    broker: BrokerConfig
    store: MessageStoreConfig
    namesrv_tls: TlsConfig
    broker_tls: TlsConfig
    warnings: list[str]


class _Tls(NamedTuple):
    """TLS of the servers.

    Attributes:
      check: of the self-check, if a server only serves TLS; it trusts any certificate, because both
        servers are in this process.
    """

    namesrv: Tls
    broker: Tls
    check: ClientTls | None

    @classmethod
    def of(cls, configured: _Configured) -> _Tls:
        """Read the certificates. Raises: ConfigError: a file cannot be used."""
        from ..remoting.tls_client import ClientTls
        from ..remoting.tls_settings import new_tls

        of_namesrv, of_broker = configured.namesrv_tls, configured.broker_tls
        check = None
        if TlsMode.enforcing in (of_namesrv.mode, of_broker.mode):
            check = ClientTls(with_changes(of_broker, auth_server=False, check_hostname=False))
        return cls(new_tls(of_namesrv), new_tls(of_broker), check)


def _configured(options: argparse.Namespace, folder: str) -> _Configured:
    """The configurations and their warnings; flags override files, files override defaults.

    NAMESRV_ADDR is ignored: the name server is in this process.

    Args:
      folder: the folder in --home for the broker's data.
    Raises:
      ExposedError: other machines could connect, and there is no --insecure.
      ConfigError: a file or a flag is not valid.
    """
    from ..common.machine import host_name, local_address

    home = _home(options)
    loopback = "127.0.0.1"
    of_namesrv = process.read_entries(options.namesrv_config)
    of_broker = process.read_entries(options.config_file)
    namesrv, namesrv_warnings = read_namesrv_config(
        of_namesrv,
        NamesrvConfig(
            bind_address=loopback,
            kv_config_path=str(home / "namesrv" / "kvConfig.json"),
            config_store_path=str(home / "namesrv" / "namesrv.properties"),
        ),
        path=options.namesrv_config or "",
    )
    broker, store, broker_warnings = read_broker_config(
        of_broker,
        BrokerConfig(
            bind_address=loopback,
            metrics_exporter_type=MetricsExporterType.PROM,
            trace_topic_enable=True,
        ),
        _store_defaults(options, str(home / folder)),
        path=options.config_file or "",
    )
    if not options.memory:
        refuse_source_folder(home, Path(store.store_path_root_dir))
    if options.host is not None:
        namesrv.bind_address = broker.bind_address = options.host
        if options.host not in EVERYWHERE:
            broker.broker_ip1 = options.host
    namesrv.listen_port = _port(options.namesrv_port, namesrv.listen_port, "--namesrv-port")
    broker.listen_port = _port(options.broker_port, broker.listen_port, "--broker-port")
    if options.metrics_port is not None:
        broker.metrics_prom_exporter_port = _port(options.metrics_port, 0, "--metrics-port")
    bound = broker.bind_address
    with_machine(
        broker,
        host_name=host_name(),
        local_address=local_address if bound in EVERYWHERE else lambda: bound,
    )
    if not options.insecure:
        up_exposure.check(namesrv, broker)
    broker_tls, tls_warnings = read_tls_config(of_broker, path=options.config_file or "")
    namesrv_tls = broker_tls
    if split_tls(of_namesrv)[0]:
        namesrv_tls, more = read_tls_config(of_namesrv, path=options.namesrv_config or "")
        tls_warnings += more
    if namesrv_tls.mode is TlsMode.enforcing:  # the broker has to reach it
        broker_tls = with_changes(broker_tls, enable=True)
    for config, its_tls in ((namesrv, namesrv_tls), (broker, broker_tls)):
        check_metrics_tls(config.metrics_tls_enable, its_tls)
    warnings = [*namesrv_warnings, *broker_warnings, *tls_warnings]
    warnings += up_exposure.warnings(namesrv, broker)
    return _Configured(namesrv, broker, store, namesrv_tls, broker_tls, warnings)


def _home(options: argparse.Namespace) -> Path:
    """The data folder, which is then the option `home`, too."""
    if options.memory:
        home = Path(MEMORY_HOME)
    elif options.home:
        home = Path(options.home).absolute()
    else:
        home = default_home(os.environ, Path.home())
    options.home = str(home)
    return home


def _store_defaults(options: argparse.Namespace, folder: str) -> MessageStoreConfig:
    """RocketMQ's defaults, less what a trial does not need.

    A broker.conf means production: RocketMQ's sizes, and room that is reserved. Without one, files
    have the same sizes, so that a broker.conf may come later, but take only what is written.
    """
    if options.memory:
        return MessageStoreConfig(
            store_path_root_dir=folder,
            mapped_file_size_commit_log=MEMORY_LOG_FILE_SIZE,
            mapped_file_size_consume_queue=MEMORY_QUEUE_FILE_SIZE,
            max_hash_slot_num=MEMORY_INDEX_SLOTS,
            max_index_num=4 * MEMORY_INDEX_SLOTS,
        )
    return MessageStoreConfig(
        store_path_root_dir=folder, preallocate_commit_log=options.config_file is not None
    )


def _port(given: int | None, configured: int, flag: str) -> int:
    if given is None:
        return configured
    if not 0 <= given <= 65_535 or (flag == "--broker-port" and given in (1, 2)):
        raise ConfigError(f"{flag} {given}: not a usable port")
    return given
