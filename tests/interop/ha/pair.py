"""A master and its slave as processes, each ours or Apache's, with the master's name server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from trocket.interop.apache import ApacheCluster, version_numbers
from trocket.interop.relay import Faults, Relay
from trocket.interop.trocket_peer import TrocketBroker, TrocketPair
from trocket.interop.wire import WireClient

from .frames import HaFrames

OURS = "trocket"
FILE_SIZE = 1 << 20
KEYS: dict[str, object] = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "maxMessageSize": 65_536,
    "slaveReadEnable": True,
}
"""Of both brokers: files so small that many of them are filled."""
QUICK: dict[str, object] = {"haSendHeartbeatInterval": 500, "haHousekeepingInterval": 2_500}
"""Of both brokers, where silence is to be noticed."""
RELAY_HOST = "127.0.0.2"
"""Where slaves reach a master of ours, when a relay is between. Apache's 5.5.0 slave goes where the
master's registration says and nowhere else, so the host differs and not the port. (On Linux all of
127.0.0.0/8 is there.)"""
HA_PORT_STEP = 1
SYNC_INTERVAL_MS = 2_000
"""Of our slave: how often it asks for topics, groups and offsets."""
PAUSE_S = 0.05

Broker = TrocketBroker | ApacheCluster


@dataclass(frozen=True)
class Roles:
    """Who is what: "trocket" or an Apache version, such as "5.5.0"."""

    master: str
    slave: str

    def __str__(self) -> str:
        return "->".join(
            name if name == OURS else f"apache-{name}" for name in (self.master, self.slave)
        )

    @property
    def slave_hears_silence(self) -> bool:
        """Apache's 4.x slave never does: what it looks at is when it last wrote itself.

        Source: HAService.HAClient.run of 4.9.7, lastWriteTimestamp.
        """
        return self.slave == OURS or version_numbers(self.slave) >= (5,)


OURS_WITH_OURS = Roles(OURS, OURS)
ROLES = [
    Roles(OURS, "5.5.0"),
    Roles(OURS, "4.9.7"),
    Roles("5.5.0", OURS),
    Roles("4.9.7", OURS),
    OURS_WITH_OURS,
]


class Pair:
    """Both brokers, stopped at first. Use it as a context manager: all ends with it.

    Args:
      folder: everything of this run.
      keys: of broker.conf, of both.
      relayed: whether the log goes through a relay.

    Attributes:
      master: with the name server of both.
      frames: what has passed the relay.
    """

    def __init__(
        self,
        roles: Roles,
        folder: Path,
        *,
        keys: Mapping[str, object] | None = None,
        relayed: bool = False,
    ) -> None:
        self.roles = roles
        self.faults = Faults()
        self.frames = HaFrames(self.faults)
        self._relay: Relay | None = None
        all_keys = {**KEYS, **(keys or {})}
        master_keys = {**all_keys, "brokerRole": "ASYNC_MASTER", "brokerId": 0}
        slave_keys = {**all_keys, "brokerRole": "SLAVE", "brokerId": 1}
        self.master: TrocketPair | ApacheCluster
        if roles.master == OURS:
            if relayed:
                master_keys["brokerIP2"] = RELAY_HOST
            self.master = TrocketPair(folder / "master", broker_keys=master_keys)
        else:
            self.master = ApacheCluster(roles.master, folder / "master", broker_keys=master_keys)
        if relayed:
            self._relay = self._open_relay()
            if roles.master != OURS:
                slave_keys["haMasterAddress"] = self._relay.address
        self.slave: Broker
        slave_keys["namesrvAddr"] = self.master.namesrv_address
        if roles.slave == OURS:
            store = folder / "slave" / "store"
            slave_keys["slaveSyncInterval"] = SYNC_INTERVAL_MS
            self.slave = TrocketBroker(folder / "slave", store=store, broker_keys=slave_keys)
        else:
            self.slave = ApacheCluster(roles.slave, folder / "slave", broker_keys=slave_keys)

    def _open_relay(self) -> Relay:
        host, _, port = self.master.broker_address.rpartition(":")
        ha_port = int(port) + HA_PORT_STEP
        target = f"{host}:{ha_port}"
        if self.roles.master == OURS:
            return Relay(
                target, faults=self.faults, on_frame=self.frames, host=RELAY_HOST, port=ha_port
            )
        return Relay(target, faults=self.faults, on_frame=self.frames)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.slave.close()
        self.master.close()
        if self._relay is not None:
            self._relay.close()

    def kill(self, broker: Broker) -> None:
        """Kill one of both, and leave what it can be started on.

        Apache's 4.x does not start on a file that it had created, but not yet made as long as its
        files are ("length not matched message store config value, please check it manually"); 5.x
        removes such a file by itself.
        """
        broker.kill_broker()
        name = self.roles.master if broker is self.master else self.roles.slave
        if name == OURS or version_numbers(name) >= (5,):
            return
        store = broker.folder / "store"
        for path in [*store.glob("commitlog/*"), *store.glob("consumequeue/*/*/*")]:
            if path.stat().st_size == 0:
                print(f"{self.roles}: {path.relative_to(store)} is empty after the kill")
                path.unlink()

    @property
    def logs(self) -> tuple[Path, Path]:
        """Folders of the commit logs, the master's first."""
        master, slave = (
            broker.folder / "store" / "commitlog" for broker in (self.master, self.slave)
        )
        return master, slave

    def ask_master(self) -> WireClient:
        """A connection to the master."""
        return WireClient(self.master.broker_address)

    def ask_slave(self) -> WireClient:
        """A connection to the slave."""
        return WireClient(self.slave.broker_address)
