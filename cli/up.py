"""`trocket up`: name server and broker in one process, ready for the official clients.

With `--masters`, `--slaves` or `--brokers` each broker runs in a separate process: `up_cluster.py`.

Ready means: both listen, the broker is registered, and a message passed (`self_check`). A broker
whose store accepts no messages (read-only, disk full) is still served, with a notice.
On a stop the broker ends first, so that it can still unregister from the name server.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import __version__
from ..broker.config import BrokerConfig, read_broker_config, with_machine
from ..common import process
from ..common.config import ConfigError
from ..namesrv.config import NamesrvConfig, read_namesrv_config
from ..native import choice
from ..remoting.hosts import join_address
from ..store.config import MessageStoreConfig
from ..store.errors import StoreError
from .up_plan import ConfigFile, Shape, plan, reachable, shape_of, usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import trio

    from ..broker.controller import BrokerController

PROGRAM = "trocket up"
EVERYWHERE = ("0.0.0.0", "::")


def main(arguments: Sequence[str]) -> int:
    """Run both until SIGTERM or SIGINT, and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        shape = shape_of(options.masters, options.slaves, options.brokers, is_sync=options.is_sync)
        if shape is not None:
            return _serve_cluster(options, shape)
        if options.own_files:
            raise ConfigError("--broker-config needs several brokers: add --masters 2")
        namesrv, broker, store, warnings = _configured(options, "store")
    except ConfigError as error:
        return process.refuse(PROGRAM, error)
    process.log_to_stderr(options.log_level, warnings)
    up = Up(namesrv, broker, store, as_json=options.json, home=options.home)
    return process.serve(up.run, program=PROGRAM, expected=(StoreError, SelfCheckError))


def _serve_cluster(options: argparse.Namespace, shape: Shape) -> int:
    """Raises: ConfigError: the flags or the files cannot be used."""
    namesrv, broker, store, warnings = _configured(options, "")
    common = ConfigFile(options.config_file or "", process.read_entries(options.config_file))
    own = {}
    for text in options.own_files:
        name, _, path = text.partition("=")
        if not path:
            raise ConfigError(f"--broker-config {text}: write NAME=FILE, such as broker-a=a.conf")
        own[name] = ConfigFile(path, process.read_entries(path))
    members, own_warnings = plan(shape, broker, store, common, own)
    process.log_to_stderr(options.log_level, [*warnings, *own_warnings])
    from .up_cluster import ClusterError, UpCluster

    async def run(stop: trio.CancelScope) -> None:
        cluster = UpCluster(
            namesrv,
            members,
            shape,
            cluster=broker.broker_cluster_name,
            further_namesrv=broker.namesrv_addresses,
            log_level=options.log_level,
            as_json=options.json,
            home=store.store_path_root_dir,
        )
        await cluster.run(stop)

    return process.serve(run, program=PROGRAM, expected=(StoreError, ClusterError))


class SelfCheckError(Exception):
    """The servers run, but the self-check's message did not pass."""


class Up:
    """A name server and a broker in one process.

    Args:
      namesrv, broker, store: whole configurations; a port 0 takes any free one.
      as_json: when ready, print one JSON object, and nothing else on standard output.
      home: the data folder, to be printed.
    """

    def __init__(
        self,
        namesrv: NamesrvConfig,
        broker: BrokerConfig,
        store: MessageStoreConfig,
        *,
        as_json: bool,
        home: str,
    ) -> None:
        self._namesrv = namesrv
        self._broker = broker
        self._store = store
        self._as_json = as_json
        self._home = home

    async def run(self, stop: trio.CancelScope) -> None:
        """Run both until `stop` is cancelled.

        Raises: OSError, StoreError: a server could not start; SelfCheckError: the self-check's
          message did not pass; or the error of a server that failed.
        """
        import trio

        from ..broker.controller import BrokerController
        from ..namesrv.controller import NamesrvController
        from ..remoting.client import split_address
        from ..remoting.turn import Turn
        from ..store.clock import SystemClock
        from ..store.disk.os_disk import OsDisk

        clock, turn = SystemClock(), Turn()
        # `stop` cancels only the inner nursery: the broker unregisters at the name server.
        async with trio.open_nursery() as outer:
            disk = OsDisk()
            namesrv = NamesrvController(self._namesrv, clock=clock, disk=disk, turn=turn)
            await outer.start(namesrv.run)
            namesrv_port = split_address(namesrv.listen_addresses[0])[1]
            ours = join_address(reachable(self._namesrv.bind_address), namesrv_port)
            self._broker.namesrv_addr = ";".join([ours, *self._broker.namesrv_addresses])
            broker = BrokerController(self._broker, self._store, clock=clock, disk=disk, turn=turn)
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
            refused or f"one message sent and consumed in {check_ms:.0f} ms",
            refused,
        )

    async def _check(self, namesrv: str, here: str, broker: BrokerController) -> tuple[float, str]:
        from ..remoting.errors import RemotingError
        from .self_check import check

        takes_sends = not broker.sends_refused
        try:
            return await check(namesrv, here, broker.broker_addr, takes_sends=takes_sends)
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
            "sendsRefused": refused,
            "hotPath": choice.description,
        }
        if self._as_json:
            process.say(json.dumps(facts))
            return
        listening_text = ", ".join(listening)
        process.say(
            f"trocket {__version__}, process {facts['pid']}\n"
            f"  name server  {namesrv}\n"
            f"  broker       {advertised}  {self._broker.broker_name} of "
            f"{self._broker.broker_cluster_name}, listening on {listening_text}\n"
            f"  data         {facts['store']}\n"
            f"  self-check   {checked}\n"
            f"  hot path     {choice.description}\n"
            "\n"
            f"{usage(namesrv)}\n"
            f"ready {facts['seconds']:.2f} s after the start; Ctrl-C or SIGTERM stops"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        PROGRAM,
        description="Run name server and broker in one process, or several brokers.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--home",
        default=str(Path.home() / "trocket"),
        metavar="DIR",
        help="store data in DIR (~/trocket); storePathRootDir in a file takes precedence",
    )
    parser.add_argument(
        "--host",
        metavar="HOST",
        help="listen on HOST and advertise it to clients (127.0.0.1); with 0.0.0.0, listen on all "
        "addresses and advertise this machine's, or brokerIP1",
    )
    parser.add_argument(
        "--namesrv-port",
        type=int,
        metavar="PORT",
        help="listen on PORT (9876); 0 takes any free port",
    )
    parser.add_argument(
        "--broker-port",
        type=int,
        metavar="PORT",
        help="listen on PORT (10911), and on PORT - 2 as VIP port; 0 takes any free port; with "
        "several brokers, it is the first one's, the next takes PORT + 10",
    )
    parser.add_argument(
        "-c", dest="config_file", metavar="FILE", help="read this broker.conf of RocketMQ"
    )
    parser.add_argument(
        "--namesrv-config", metavar="FILE", help="read this namesrv.conf of RocketMQ"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON when ready")
    process.add_log_level(parser, "warning")
    several = parser.add_argument_group(
        "several brokers", "each broker has its own process, and its own folder in --home"
    )
    several.add_argument(
        "--masters", type=int, metavar="N", help="run N masters: broker-a, broker-b, …"
    )
    several.add_argument(
        "--slaves",
        type=int,
        metavar="N",
        help="run N slaves of each master (0): broker-a-1, broker-b-1, …",
    )
    several.add_argument(
        "--brokers", type=int, metavar="N", help="run N masters without slaves, as --masters N"
    )
    several.add_argument(
        "--sync",
        dest="is_sync",
        action="store_true",
        help="let masters confirm a send when a slave has it: brokerRole=SYNC_MASTER",
    )
    several.add_argument(
        "--broker-config",
        dest="own_files",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="read a broker.conf for one broker, such as broker-a=a.conf; it overrides -c",
    )
    return parser


class _Configured(NamedTuple):
    """The settings of the servers, and the warnings about their files."""

    namesrv: NamesrvConfig
    broker: BrokerConfig
    store: MessageStoreConfig
    warnings: list[str]


def _configured(options: argparse.Namespace, folder: str) -> _Configured:
    """The configurations and their warnings; flags override files, files override defaults.

    NAMESRV_ADDR is ignored: the name server is in this process.

    Args:
      folder: the folder in --home for the broker's data.
    Raises: ConfigError: a file or a flag is not valid.
    """
    from ..common.machine import host_name, local_address

    home = Path(options.home).absolute()
    options.home = str(home)
    loopback = "127.0.0.1"
    namesrv, namesrv_warnings = read_namesrv_config(
        process.read_entries(options.namesrv_config),
        NamesrvConfig(
            bind_address=loopback,
            kv_config_path=str(home / "namesrv" / "kvConfig.json"),
            config_store_path=str(home / "namesrv" / "namesrv.properties"),
        ),
        path=options.namesrv_config or "",
    )
    broker, store, broker_warnings = read_broker_config(
        process.read_entries(options.config_file),
        BrokerConfig(bind_address=loopback),
        MessageStoreConfig(store_path_root_dir=str(home / folder)),
        path=options.config_file or "",
    )
    if options.host is not None:
        namesrv.bind_address = broker.bind_address = options.host
        if options.host not in EVERYWHERE:
            broker.broker_ip1 = options.host
    namesrv.listen_port = _port(options.namesrv_port, namesrv.listen_port, "--namesrv-port")
    broker.listen_port = _port(options.broker_port, broker.listen_port, "--broker-port")
    bound = broker.bind_address
    with_machine(
        broker,
        host_name=host_name(),
        local_address=local_address if bound in EVERYWHERE else lambda: bound,
    )
    return _Configured(namesrv, broker, store, [*namesrv_warnings, *broker_warnings])


def _port(given: int | None, configured: int, flag: str) -> int:
    if given is None:
        return configured
    if not 0 <= given <= 65_535 or (flag == "--broker-port" and given in (1, 2)):
        raise ConfigError(f"{flag} {given}: not a usable port")
    return given
