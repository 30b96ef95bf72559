"""A master and its slave as processes, each with a folder that stands for its disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trocket.interop.apache import broker_conf_text
from trocket.interop.ports import free_port
from trocket.interop.process import LineProcess
from trocket.interop.trocket_peer import COMMAND, TrocketBroker
from trocket.interop.wire import WireClient
from trocket.remoting.bodies import HARuntimeInfo
from trocket.remoting.request_codes import RequestCode

from ...kit.waiting import wait_until
from .load import QUEUES, TOPICS

FILE_SIZE = 64 * 1024
KEYS: Mapping[str, object] = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "slaveReadEnable": True,
    "slaveTimeout": 300,
}
"""Files of one log hold some 40 messages, of a queue 100, of the index 400."""

START_TIMEOUT_S = 30.0


class NameServer:
    """From it a slave learns where its master is. It is not killed here.

    Attributes:
      address: HOST:PORT.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        (folder / "namesrv.conf").write_text(
            broker_conf_text({"listenPort": port, "bindAddress": "127.0.0.1"})
        )
        self._process = LineProcess(
            [*COMMAND, "namesrv", "-c", str(folder / "namesrv.conf")],
            folder=folder,
            name="namesrv",
            environment={"PYTHONUNBUFFERED": "1"},
        )
        self._process.wait_line(lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S)

    def close(self) -> None:
        """Kill it."""
        self._process.kill()


class Pair:
    """One master and one slave, stopped. Use it as a context manager: all end with it.

    Args:
      folder: for both.
      namesrv: HOST:PORT.
      name: of the broker, its own for each pair of one name server.
      keys: of both brokers, besides `KEYS`.
    """

    def __init__(
        self, folder: Path, namesrv: str, name: str, keys: Mapping[str, object] | None = None
    ) -> None:
        self._folder = folder
        self._keys = {
            **KEYS,
            "brokerName": name,
            "namesrvAddr": namesrv,
            "autoCreateTopicEnable": False,
            **(keys or {}),
        }
        self._brokers: list[TrocketBroker] = []
        self.master = self._broker("master", {"brokerRole": "SYNC_MASTER"})
        self.slave = self._broker("slave", {"brokerRole": "SLAVE", "brokerId": 1})

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self._brokers:
            broker.close()

    @property
    def master_store(self) -> Path:
        """The folder that stands for the master's disk."""
        return self._folder / "master-disk"

    @property
    def slave_store(self) -> Path:
        """The folder that stands for the slave's disk."""
        return self._folder / "slave-disk"

    def start(self) -> None:
        """Start both; the slave is in sync and knows the topics."""
        self.master.start_broker()
        with WireClient(self.master.broker_address) as wire:
            for topic in TOPICS:
                wire.create_topic(topic, queue_count=QUEUES)
        self.slave.start_broker()
        self.has_slave()
        with WireClient(self.slave.broker_address) as wire:
            wait_until(lambda: set(TOPICS) <= wire.topics().keys(), "the slave has no topics")

    def has_slave(self, master: TrocketBroker | None = None) -> None:
        """Wait until a master (the first one) has a slave with all that it has itself."""
        address = (master or self.master).broker_address
        with WireClient(address) as wire:

            def is_whole() -> bool:
                body = wire.call(RequestCode.GET_BROKER_HA_STATUS, {}).checked().body
                state = HARuntimeInfo.from_body(body)
                end = state.master_commit_log_max_offset
                return [each.slave_ack_offset for each in state.ha_connection_info] == [end]

            wait_until(is_whole, "the slave does not catch up")

    def lose_master(self) -> Path:
        """Kill the master with -9 and take its disk away; where that is kept for comparison."""
        self.master.kill_broker()
        return self.master_store.rename(self._folder / "lost-disk")

    def promote(self, role: str) -> TrocketBroker:
        """The stopped slave as a master, as an operator makes it one; started."""
        promoted = self._broker("slave", {"brokerRole": role, "brokerId": 0})
        promoted.start_broker()
        return promoted

    def demote_old_master(self) -> TrocketBroker:
        """The stopped old master as a slave of the promoted one; started."""
        demoted = self._broker("master", {"brokerRole": "SLAVE", "brokerId": 1})
        demoted.start_broker()
        return demoted

    def _broker(self, disk: str, keys: Mapping[str, object]) -> TrocketBroker:
        folder = self._folder / f"{disk}-{len(self._brokers)}"
        made = TrocketBroker(
            folder, store=self._folder / f"{disk}-disk", broker_keys={**self._keys, **keys}
        )
        self._brokers.append(made)
        return made
