"""`trocket up`: name server and broker in one process, ready for the official clients.

With `--masters`, `--slaves` or `--brokers` each broker has a process of its own: `up_cluster.py`.

Ready means: both listen, the broker is registered, and a message went through (`self_check`). A
store that takes no message (read-only, disk full) is served all the same, and says so.
Stopping ends the broker first, so that it can still tell the name server.
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
    """Run both until SIGTERM or SIGINT; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        shape = shape_of(options.masters, options.slaves, options.brokers, is_sync=options.is_sync)
        if shape is not None:
            return _serve_cluster(options, shape)
        if options.own_files:
            raise ConfigError("--broker-config is for several brokers: add --masters 2")
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
            raise ConfigError(f"--broker-config {text}: write NAME=FILE, as broker-a=a.conf")
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
    """The servers run, but a message did not pass through them."""


class Up:
    """Both servers of one process.

    Args:
      namesrv, broker, store: whole configurations, ports may be 0.
      as_json: say one JSON object when ready, and nothing else on standard output.
      home: the data folder, to be shown.
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

        Raises: OSError, StoreError: could not start; SelfCheckError; or what a server failed with.
        """
        import trio

        from ..broker.controller import BrokerController
        from ..namesrv.controller import NamesrvController
        from ..remoting.client import split_address
        from ..remoting.turn import Turn
        from ..store.clock import SystemClock
        from ..store.disk.os_disk import OsDisk

        clock, turn = SystemClock(), Turn()
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

        told = broker.broker_addr
        port = split_address(told)[1]
        here = join_address(reachable(self._broker.bind_address), port)
        try:
            check_ms, warning = await self._check(namesrv, here, broker)
        except SelfCheckError:
            if not broker.sends_refused:
                raise
            # The disk was looked at meanwhile, and is too full.
            check_ms, warning = await self._check(namesrv, here, broker)
        refused = broker.sends_refused
        if warning:
            process.logger.warning(warning)
        host = self._broker.broker_ip1 if here != told else reachable(self._namesrv.bind_address)
        self._announce(
            join_address(host, split_address(namesrv)[1]),
            told,
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
        self, namesrv: str, told: str, listening: Sequence[str], checked: str, refused: str
    ) -> None:
        facts: dict[str, Any] = {
            "ready": True,
            "seconds": round(process.seconds_since_start(), 3),
            "version": __version__,
            "pid": os.getpid(),
            "namesrv": namesrv,
            "broker": told,
            "listening": list(listening),
            "home": self._home,
            "store": self._store.store_path_root_dir,
            "sendsRefused": refused,
        }
        if self._as_json:
            process.say(json.dumps(facts))
            return
        listening_text = ", ".join(listening)
        process.say(
            f"trocket {__version__}, process {facts['pid']}\n"
            f"  name server  {namesrv}\n"
            f"  broker       {told}  {self._broker.broker_name} of "
            f"{self._broker.broker_cluster_name}, listening on {listening_text}\n"
            f"  data         {facts['store']}\n"
            f"  self-check   {checked}\n"
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
        help="data of both (~/trocket); storePathRootDir of a file counts more",
    )
    parser.add_argument(
        "--host",
        metavar="HOST",
        help="address to listen on and to tell clients (127.0.0.1); with 0.0.0.0 it listens "
        "everywhere and tells this machine's address, or brokerIP1",
    )
    parser.add_argument("--namesrv-port", type=int, metavar="PORT", help="9876; 0 takes a free one")
    parser.add_argument(
        "--broker-port",
        type=int,
        metavar="PORT",
        help="10911; 0 takes a free one; PORT - 2 is the VIP port; of several brokers the first's, "
        "the next is PORT + 10",
    )
    parser.add_argument("-c", dest="config_file", metavar="FILE", help="RocketMQ's broker.conf")
    parser.add_argument(
        "--namesrv-config", metavar="FILE", help="RocketMQ's namesrv.conf, if there is one"
    )
    parser.add_argument("--json", action="store_true", help="when ready, one line of JSON")
    process.add_log_level(parser, "warning")
    several = parser.add_argument_group(
        "several brokers", "each in a process of its own, with a folder of its own in --home"
    )
    several.add_argument("--masters", type=int, metavar="N", help="broker-a, broker-b, …")
    several.add_argument(
        "--slaves", type=int, metavar="N", help="of each master: broker-a-1, broker-b-1, … (0)"
    )
    several.add_argument(
        "--brokers", type=int, metavar="N", help="the same as --masters N without slaves"
    )
    several.add_argument(
        "--sync",
        dest="is_sync",
        action="store_true",
        help="masters answer a send when a slave has it: brokerRole=SYNC_MASTER",
    )
    several.add_argument(
        "--broker-config",
        dest="own_files",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a broker.conf for one of them, such as broker-a=a.conf; counts more than -c",
    )
    return parser


class _Configured(NamedTuple):
    """The settings of the servers, and warnings about the files that they are from."""

    namesrv: NamesrvConfig
    broker: BrokerConfig
    store: MessageStoreConfig
    warnings: list[str]


def _configured(options: argparse.Namespace, folder: str) -> _Configured:
    """What counts, from low to high: defaults, files, flags. NAMESRV_ADDR plays no part here.

    Args:
      folder: for the broker's data, in --home.
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
    told = broker.bind_address
    with_machine(
        broker,
        host_name=host_name(),
        local_address=local_address if told in EVERYWHERE else lambda: told,
    )
    return _Configured(namesrv, broker, store, [*namesrv_warnings, *broker_warnings])


def _port(given: int | None, configured: int, flag: str) -> int:
    if given is None:
        return configured
    if not 0 <= given <= 65_535 or (flag == "--broker-port" and given in (1, 2)):
        raise ConfigError(f"{flag} {given} is not a port")
    return given
