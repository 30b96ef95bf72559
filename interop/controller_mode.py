"""A set of brokers in controller mode as processes, ours and Apache's, with its controllers.

Each part can be killed, frozen and started again. The name server is a separate process, so that a
controller ends alone.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from .apache import (
    NO_TLS,
    STOP_TIMEOUT_S,
    ApacheCluster,
    broker_conf_text,
    start_java,
)
from .etcd import EtcdCluster
from .maven import JAVA_SMALL, fetch_jars
from .peer import LocalCluster, Part
from .ports import free_port
from .process import PeerError
from .trocket_peer import (
    COMMAND,
    START_TIMEOUT_S,
    UNBUFFERED,
    OurProcess,
    TrocketBroker,
    TrocketPair,
)
from .wire import SUCCESS, WireClient

APACHE: Final = "apache"
OURS: Final = "trocket"
NONE: Final = "none"
"""A controller that the caller serves itself, on the set's controller address."""
KINDS: Final = (APACHE, OURS)

VERSION: Final = "5.5.0"
CLUSTER: Final = "DefaultCluster"
BROKER_NAME: Final = "broker-a"
FILE_SIZE: Final = 16 << 20
"""Of the commit log: each broker makes whole files in advance."""

BROKER_KEYS: Final[Mapping[str, object]] = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 200_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
}
"""Of both kinds: files so small that a set is made and compared quickly."""
QUICK_BROKER: Final[Mapping[str, object]] = {
    "brokerHeartbeatInterval": 200,
    "sendHeartbeatTimeoutMillis": 500,
    "controllerHeartBeatTimeoutMills": 2_000,
    "syncBrokerMetadataPeriod": 1_000,
    "syncControllerMetadataPeriod": 1_000,
    "checkSyncStateSetPeriod": 500,
    "haSendHeartbeatInterval": 500,
    "haMaxTimeSlaveNotCatchup": 3_000,
}
"""Of both kinds: a frozen master is replaced in about 3 s, and a slave joins the set at once."""
QUICK_CONTROLLER: Final[Mapping[str, object]] = {
    "scanNotActiveBrokerInterval": 500,
    "scanInactiveMasterInterval": 500,
}
"""Of both kinds, to be used with QUICK_BROKER."""

CONTROLLER_GET_METADATA_INFO: Final = 1005
CONTROLLER_GET_SYNC_STATE_DATA: Final = 1006
ANSWER_TIMEOUT_S: Final = 2.0
"""For a controller, which may be frozen."""
CHANGE_TIMEOUT_S: Final = 60.0
"""For a change of a set, under Apache's defaults on a busy machine."""
PAUSE_S: Final = 0.05


@dataclass(frozen=True)
class Mix:
    """The kinds of a set's brokers, in the order of their start, and of its controllers."""

    brokers: tuple[str, ...] = (APACHE, APACHE)
    controller: str = APACHE

    def __str__(self) -> str:
        return f"{'+'.join(self.brokers)} under {self.controller}"


@dataclass(frozen=True)
class SetState:
    """A set as its controller knows it.

    Attributes:
      master_id: controller id; None: there is no master.
      master_address: `host:port`; "": there is no master.
      in_sync: controller ids.
      addresses: of all members, by controller id.
      alive: controller ids of those whose heartbeats arrive.
    """

    master_id: int | None
    master_address: str
    master_epoch: int
    in_sync: frozenset[int]
    addresses: Mapping[int, str]
    alive: frozenset[int]


class SetPart(Protocol):
    """A broker or a controller of a set: what can be done to its process."""

    @property
    def name(self) -> str: ...

    @property
    def is_running(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


class Member:
    """A broker of a set, stopped at first.

    Attributes:
      name: "member-0" and so on, in the order of the set's members.
      kind: APACHE or OURS.
      folder: everything of this broker.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        folder: Path,
        keys: Mapping[str, object],
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        self.name = name
        self.kind = kind
        self.folder = folder
        self._keys = dict(keys)
        self._command = command
        self._broker = self._made()

    def _made(self) -> LocalCluster:
        folder = self.folder
        if self.kind == APACHE:
            return ApacheCluster(VERSION, folder, broker_keys=self._keys)
        if self.kind == OURS:
            return TrocketBroker(
                folder, store=folder / "store", broker_keys=self._keys, command=self._command
            )
        raise PeerError(f"a broker is of the kind {' or '.join(KINDS)}, not {self.kind!r}")

    def become(self, kind: str) -> None:
        """Be of another kind from the next start on, with the same data folder, at another port.

        Raises: PeerError: it runs.
        """
        if self.is_running:
            raise PeerError(f"{self.name} runs")
        self._broker.close()
        self.kind = kind
        self._broker = self._made()

    @property
    def address(self) -> str:
        """HOST:PORT where clients reach it."""
        return self._broker.broker_address

    @property
    def store(self) -> Path:
        """Its data folder."""
        return self.folder / "store"

    @property
    def pid(self) -> int:
        """Of the running process."""
        return self._broker.pids[0]

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped or killed; a frozen one counts."""
        return bool(self._broker.pids)

    def start(self) -> None:
        """Start it, and wait until it reports that it has booted. Raises PeerError."""
        self._broker.start_broker()

    def stop(self) -> None:
        """Stop it by SIGTERM; a frozen one must go on before. Raises PeerError."""
        self._broker.stop_broker()

    def kill(self) -> None:
        """Kill it with SIGKILL, frozen or not, and wait until it is gone."""
        self._broker.kill_broker()

    def freeze(self) -> None:
        """Freeze it (SIGSTOP): its connections stay open, and nothing is answered."""
        self._broker.freeze_broker()

    def thaw(self) -> None:
        """Let it go on after `freeze` (SIGCONT)."""
        self._broker.thaw_broker()

    def restart(self) -> None:
        """`stop` and `start`."""
        self.stop()
        self.start()


class ControllerProcess:
    """A controller of a set, stopped at first; the methods are those of `Member`.

    Attributes:
      name: "controller-0" and so on.
      kind: APACHE or OURS.
    """

    def __init__(self, number: int, kind: str, folder: Path, keys: Mapping[str, object]) -> None:
        self.name = f"controller-{number}"
        self.kind = kind
        self.folder = folder
        self.address = f"127.0.0.1:{keys['listenPort']}"
        self._part: Part | None = None
        conf = folder / "conf"
        conf.mkdir(parents=True)
        self._conf = conf / "controller.conf"
        self._conf.write_text(broker_conf_text(keys))

    @property
    def pid(self) -> int:
        """Of the running process. Raises: PeerError: it does not run."""
        if self._part is None:
            raise PeerError(f"{self.name} does not run")
        return self._part.pid

    @property
    def is_running(self) -> bool:
        return self._part is not None

    def start(self) -> None:
        """Start it, and wait until it reports that it has booted. Raises PeerError."""
        if self._part is not None:
            return
        if self.kind == APACHE:
            jars = fetch_jars(VERSION, "server")
            self._part = start_java(
                "controller", self.folder, jars=jars, java=(*JAVA_SMALL, NO_TLS)
            )
            return
        command = [*COMMAND, "controller", "-c", str(self._conf)]
        process = OurProcess(command, folder=self.folder, name="controller", environment=UNBUFFERED)
        self._part = process
        process.wait_line(lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S)

    def stop(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.stop(timeout_s=STOP_TIMEOUT_S)

    def kill(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.kill()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class ControlledSet:
    """Name servers, controllers, and brokers of one name in controller mode.

    Use it as a context manager: all processes end with it.

    Args:
      mix: of which kinds they are.
      folder: everything of this run; no two sets share one.
      keys: of broker.conf, of all members, over BROKER_KEYS.
      controller_keys: of controller.conf.
      controller_count: how many; those of Apache's need a majority, and several of ours have their
        state in an etcd of three members. With NONE there is one address.
      namesrv: the kind of the name servers.
      namesrv_count: how many.
      command: the words before `broker -c FILE` that run a broker of ours.
      quick: QUICK_BROKER and QUICK_CONTROLLER below the keys that are given; False: the defaults.

    Attributes:
      members, controllers: in the order of their start.
      etcd: the controllers' etcd; None: they have none.
      namesrvs: in the order of their start.
      namesrv_address: HOST:PORT of the name server; of several, with semicolons between them.
      controller_addresses: HOST:PORT of each controller.
    """

    def __init__(
        self,
        mix: Mix,
        folder: Path,
        *,
        keys: Mapping[str, object] | None = None,
        controller_keys: Mapping[str, object] | None = None,
        controller_count: int = 1,
        namesrv: str = OURS,
        namesrv_count: int = 1,
        command: tuple[str, ...] = COMMAND,
        quick: bool = True,
    ) -> None:
        self.mix = mix
        self.folder = folder
        self.namesrvs = tuple(
            _namesrv(namesrv, folder / ("namesrv" if number == 0 else f"namesrv-{number}"))
            for number in range(namesrv_count)
        )
        self.namesrv_address = ";".join(each.namesrv_address for each in self.namesrvs)
        ports = [free_port() for _ in range(controller_count)]
        self.controller_addresses = tuple(f"127.0.0.1:{port}" for port in ports)
        self.etcd: EtcdCluster | None = None
        state: dict[str, object] = {}
        if mix.controller == OURS and controller_count > 1:
            self.etcd = EtcdCluster(folder / "etcd")
            state["etcdEndpoints"] = ";".join(self.etcd.endpoints)
        settings = {**state, **(QUICK_CONTROLLER if quick else {}), **(controller_keys or {})}
        self.controllers: tuple[ControllerProcess, ...] = ()
        if mix.controller != NONE:
            self.controllers = tuple(
                ControllerProcess(
                    number,
                    mix.controller,
                    folder / f"controller-{number}",
                    {**keys_of_controller(mix.controller, folder, ports, number), **settings},
                )
                for number in range(controller_count)
            )
        all_keys: dict[str, object] = {
            "brokerName": BROKER_NAME,
            "brokerClusterName": CLUSTER,
            "namesrvAddr": self.namesrv_address,
            "enableControllerMode": True,
            "controllerAddr": ";".join(self.controller_addresses),
            **BROKER_KEYS,
            **(QUICK_BROKER if quick else {}),
            **(keys or {}),
        }
        self.members = tuple(
            Member(f"member-{number}", kind, folder / f"member-{number}", all_keys, command)
            for number, kind in enumerate(mix.brokers)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        parts: tuple[SetPart, ...] = (*self.members, *self.controllers)
        for part in parts:
            part.kill()
        if self.etcd is not None:
            for each in self.etcd.members:
                each.kill()
        for namesrv in self.namesrvs:
            namesrv.close()

    def start(self) -> None:
        """Start everything, one broker after the other, and wait until all are in sync.

        The first broker becomes the master with the controller id 1.

        Raises: PeerError: a part was not ready in time.
        """
        self.start_namesrv()
        if self.etcd is not None:
            self.etcd.start()
        for controller in self.controllers:
            controller.start()
        for number, member in enumerate(self.members):
            member.start()
            self.wait_state(
                partial(_is_whole, count=number + 1), f"{number + 1} brokers in sync with a master"
            )

    def start_namesrv(self) -> None:
        """Start the name servers alone. Raises PeerError."""
        for namesrv in self.namesrvs:
            namesrv.start_namesrv()

    def restart_namesrv(self) -> None:
        """Stop the name servers and start them, without what they knew. Raises PeerError."""
        for namesrv in self.namesrvs:
            namesrv.stop_namesrv()
            namesrv.start_namesrv()

    # ---- what the controllers know -------------------------------------------------------

    def state(self) -> SetState | None:
        """The set as the leader of the controllers knows it; None: none leads, or knows the set."""
        for address in self.controller_addresses:
            body = _ask(address, CONTROLLER_GET_SYNC_STATE_DATA, json.dumps([BROKER_NAME]).encode())
            if body is None:
                continue
            table = json.loads(body.body or b"{}").get("replicasInfoTable", {})
            if BROKER_NAME in table:
                return _state(table[BROKER_NAME])
        return None

    def leader(self) -> ControllerProcess | None:
        """The controller that leads; None: none of those that answer knows a leader."""
        for address in self.controller_addresses:
            answer = _ask(address, CONTROLLER_GET_METADATA_INFO, b"")
            named = "" if answer is None else answer.fields.get("controllerLeaderAddress", "")
            for controller in self.controllers:
                if controller.address == named:
                    return controller
        return None

    def wait_state(
        self, matches: Callable[[SetState], bool], what: str, *, timeout_s: float = CHANGE_TIMEOUT_S
    ) -> SetState:
        """Wait until the set's state is as wanted, and return it.

        Args:
          what: is waited for, for the error's text.
        Raises: PeerError: it did not come in time; the text has the last state.
        """
        until_s = time.monotonic() + timeout_s
        never = threading.Event()
        while True:
            state = self.state()
            if state is not None and matches(state):
                return state
            if time.monotonic() > until_s:
                raise PeerError(f"{self.mix}: not {what} after {timeout_s:.0f} s: {state}")
            never.wait(PAUSE_S)

    def wait_in_sync(self, count: int, *, timeout_s: float = CHANGE_TIMEOUT_S) -> SetState:
        """Wait until there is a living master and `count` members are in sync. Raises PeerError."""
        what = f"{count} in sync with a master"
        return self.wait_state(partial(_is_whole, count=count), what, timeout_s=timeout_s)

    def wait_other_master(
        self, lost: Member, *, timeout_s: float = CHANGE_TIMEOUT_S
    ) -> tuple[Member, SetState]:
        """Wait until the master is another than `lost`; the new one, and the state.

        Raises: PeerError: it did not change in time.
        """
        state = self.wait_state(
            lambda state: state.master_address not in ("", lost.address),
            f"a master other than {lost.name}",
            timeout_s=timeout_s,
        )
        return self.member_at(state.master_address), state

    def master(self) -> Member:
        """The member that the controller names as the master. Raises: PeerError: there is none."""
        state = self.state()
        if state is None or not state.master_address:
            raise PeerError(f"{self.mix}: no master: {state}")
        return self.member_at(state.master_address)

    def slaves(self) -> list[Member]:
        """All other members. Raises: PeerError: there is no master."""
        master = self.master()
        return [member for member in self.members if member is not master]

    def member_at(self, address: str) -> Member:
        """The member of an address. Raises: PeerError: there is none."""
        for member in self.members:
            if member.address == address:
                return member
        raise PeerError(f"no member has the address {address!r}")


def _namesrv(kind: str, folder: Path) -> LocalCluster:
    return ApacheCluster(VERSION, folder) if kind == APACHE else TrocketPair(folder)


def keys_of_controller(kind: str, folder: Path, ports: list[int], number: int) -> dict[str, object]:
    """What a controller's file says of itself and the others."""
    store = folder / f"controller-{number}" / "store"
    group = {
        "controllerDLegerGroup": "group1",
        "controllerDLegerPeers": ";".join(
            f"n{each}-127.0.0.1:{port}" for each, port in enumerate(ports)
        ),
        "controllerDLegerSelfId": f"n{number}",
    }
    keys: dict[str, object] = {"listenPort": ports[number], "controllerStorePath": store}
    if kind == APACHE:
        return {**keys, **group, "mappedFileSize": FILE_SIZE}
    return {**keys, **(group if len(ports) > 1 else {}), "bindAddress": "127.0.0.1"}


def _ask(address: str, code: int, body: bytes) -> Any:
    """A controller's answer; None: it does not run, does not answer in time, or does not lead."""
    try:
        with WireClient(address, timeout_s=ANSWER_TIMEOUT_S) as client:
            answer = client.call(code, {}, body)
    except PeerError:
        return None
    return answer if answer.code == SUCCESS else None


def _state(info: Mapping[str, Any]) -> SetState:
    in_sync = info.get("inSyncReplicas") or []
    members = [*in_sync, *(info.get("notInSyncReplicas") or [])]
    master_id = info.get("masterBrokerId")
    return SetState(
        master_id=None if master_id is None else int(master_id),
        master_address=info.get("masterAddress") or "",
        master_epoch=int(info.get("masterEpoch") or 0),
        in_sync=frozenset(int(each["brokerId"]) for each in in_sync),
        addresses={int(each["brokerId"]): each["brokerAddress"] for each in members},
        alive=frozenset(int(each["brokerId"]) for each in members if each.get("alive")),
    )


def _is_whole(state: SetState, *, count: int) -> bool:
    return state.master_id in state.alive and len(state.in_sync) >= count
