"""The brokers of `trocket up --masters M --slaves S`: names, ids, roles, ports, folders and keys.

Pure: the flags and the entries of files come in; what each broker is told goes out, as lines of a
broker.conf. Two masters with a slave each are the cluster of RocketMQ's `conf/2m-2s-async`:

    broker-a      id 0, a master      port P            P - 2 the VIP port, P + 1 for slaves
    broker-b      id 0, a master      port P + 10
    broker-a-1    id 1, a slave       port P + 20
    broker-b-1    id 1, a slave       port P + 30
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import NamedTuple

from ..broker.config import MASTER_ID, BrokerConfig, read_broker_config
from ..common.config import ConfigError, Entry, key_of, property_line
from ..store.config import BrokerRole, MessageStoreConfig

MASTERS_MAX = len(ascii_lowercase)
"""There are no more names."""

BROKERS_MAX = 32
"""On one machine: each is a process, with files of 1 GiB for its log."""

PORT_STEP = 10
"""Between the ports of two brokers, because each takes one two below and one above it as well."""

_SETTLED = {
    "brokerName": "the brokers are called broker-a, broker-b and so on",
    "brokerId": "a master's is 0, and its slaves' are 1 and up",
    "haListenPort": "a master's is its listenPort + 1",
    "haMasterAddress": "a slave learns its master from the name server",
}
"""Keys that no file may set here, and what is so instead."""

_CHANGE_NOTHING = {("brokerName", "broker-a"), ("brokerId", "0"), ("haListenPort", "0")}
"""But for these values: Apache's own broker.conf has them."""

_SUPPORTED = frozenset(
    key_of(field)
    for config in (BrokerConfig, MessageStoreConfig)
    for field in dataclasses.fields(config)
)


class Shape(NamedTuple):
    """How many brokers there are.

    Attributes:
      slaves: of each master.
      is_sync: each master is a SYNC_MASTER, whatever a file says.
    """

    masters: int
    slaves: int
    is_sync: bool


class ConfigFile(NamedTuple):
    """What one file says.

    Attributes:
      path: for messages only.
    """

    path: str
    entries: Sequence[Entry]


class Member(NamedTuple):
    """One broker.

    Attributes:
      name: its folder's, and what stands before its log lines: the broker's name, and behind it a
        slave's id.
      keys: all that it is told.
      bind_address: where it listens.
      store: its data folder.
    """

    name: str
    broker_name: str
    broker_id: int
    role: BrokerRole
    keys: Mapping[str, str]
    bind_address: str
    store: str

    @property
    def is_slave(self) -> bool:
        """Whether it has a master."""
        return self.role is BrokerRole.SLAVE

    def properties(self, namesrv_addr: str) -> str:
        """Its keys as lines of a broker.conf, and an empty line behind them.

        Args:
          namesrv_addr: `host:port;host:port`.
        """
        pairs = {**self.keys, "namesrvAddr": namesrv_addr}
        return "".join(property_line(key, value) for key, value in pairs.items()) + "\n"


def shape_of(
    masters: int | None, slaves: int | None, brokers: int | None, *, is_sync: bool
) -> Shape | None:
    """How many brokers the flags ask for; None: one, in the process of the name server.

    Args:
      masters, slaves, brokers, is_sync: of the command line; None: not given.
    Raises: ConfigError: they contradict one another, or are too many.
    """
    if brokers is not None and (masters is not None or slaves is not None):
        raise ConfigError("--brokers N is --masters N --slaves 0: give it without these two")
    if masters is None and slaves is None and brokers is None and not is_sync:
        return None
    flag, count = ("--brokers", brokers) if brokers is not None else ("--masters", masters)
    count = 1 if count is None else count
    shape = Shape(count, slaves or 0, is_sync)
    if not 1 <= count <= MASTERS_MAX:
        raise ConfigError(f"{flag} {count}: 1 to {MASTERS_MAX} are possible")
    if shape.slaves < 0:
        raise ConfigError(f"--slaves {slaves}: each master has 0 or more")
    if count * (1 + shape.slaves) > BROKERS_MAX:
        total = count * (1 + shape.slaves)
        raise ConfigError(f"{total} brokers are more than {BROKERS_MAX}, the most on one machine")
    if is_sync and not shape.slaves:
        raise ConfigError("--sync: masters wait for slaves, and have none: add --slaves 1")
    return shape


def plan(
    shape: Shape,
    broker: BrokerConfig,
    store: MessageStoreConfig,
    common: ConfigFile,
    own: Mapping[str, ConfigFile],
) -> tuple[list[Member], list[str]]:
    """The brokers, masters first; and the warnings of the files of `own`.

    Args:
      broker, store: what `common` and the flags come to; listen_port is the first master's, or 0,
        and the store's folders are those in which each broker has one of its own.
      own: files of single brokers by `Member.name`; what they say counts more.
    Raises: ConfigError: a file says what cannot be here.
    """
    places = [
        (letter, broker_id)
        for broker_id in range(shape.slaves + 1)
        for letter in ascii_lowercase[: shape.masters]
    ]
    names = [f"broker-{letter}" + (f"-{number}" if number else "") for letter, number in places]
    for name in own:
        if name not in names:
            raise ConfigError(f"--broker-config {name}: the brokers are {', '.join(names)}")
    _checked(common)  # its warnings are told already
    members, warnings = [], []
    for index, (name, (letter, broker_id)) in enumerate(zip(names, places, strict=True)):
        file = own.get(name, ConfigFile(common.path, ()))
        warnings += _checked(file)
        keys = {
            **_supported(common),
            **_places(broker, store, name, index),
            **_supported(file),
        }
        role = _role(shape, keys, broker_id, file.path)
        if shape.slaves:
            keys.setdefault("slaveReadEnable", "true")
        # Slaves are on this machine; brokerIP1 may be an address for other ones only.
        keys.setdefault(
            "brokerIP2", reachable(keys.get("haListenAddress", store.ha_listen_address))
        )
        broker_name = f"broker-{letter}"
        keys |= {"brokerName": broker_name, "brokerId": str(broker_id), "brokerRole": role.name}
        members.append(_member(shape, name, role, keys, file.path))
    return members, warnings


def reachable(bind_address: str) -> str:
    """An address of this machine at which a listener on `bind_address` answers."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(bind_address, bind_address)


def usage(namesrv: str) -> str:
    """What users write to connect; lines, the last one's end included."""
    return (
        f'  Java    producer.setNamesrvAddr("{namesrv}");\n'
        f'  Go      producer.WithNameServer([]string{{"{namesrv}"}})\n'
        f'  Python  Producer("rocketmq://{namesrv}")\n'
    )


def _checked(file: ConfigFile) -> list[str]:
    """The warnings of a file, looked at by itself so that an error names its line.

    Raises: ConfigError: it cannot be used, or says what is settled already.
    """
    for entry in file.entries:
        if entry.key in _SETTLED and (entry.key, entry.value.strip()) not in _CHANGE_NOTHING:
            reason = f"{entry.key}: with several brokers {_SETTLED[entry.key]}"
            raise ConfigError(reason, path=file.path, line=entry.line)
    broker, store = BrokerConfig(), MessageStoreConfig()
    return read_broker_config(list(file.entries), broker, store, path=file.path)[2]


def _supported(file: ConfigFile) -> dict[str, str]:
    """What a file sets and has effect; the last entry of a key counts."""
    return {entry.key: entry.value for entry in file.entries if entry.key in _SUPPORTED}


def _places(
    broker: BrokerConfig, store: MessageStoreConfig, name: str, index: int
) -> dict[str, str]:
    """Where one of them listens, and keeps its data."""
    port = broker.listen_port + index * PORT_STEP if broker.listen_port else 0
    places = {
        "listenPort": str(port),
        "bindAddress": broker.bind_address,
        "brokerIP1": broker.broker_ip1,
        "storePathRootDir": f"{store.store_path_root_dir}/{name}",
    }
    if store.store_path_commit_log:
        places["storePathCommitLog"] = f"{store.store_path_commit_log}/{name}"
    return places


def _role(shape: Shape, keys: Mapping[str, str], broker_id: int, path: str) -> BrokerRole:
    """Raises: ConfigError: a file makes all of them slaves, or masters that wait for nobody."""
    said = keys.get("brokerRole", BrokerRole.ASYNC_MASTER.name).strip()
    if said == BrokerRole.SLAVE.name:
        reason = "brokerRole=SLAVE: with several brokers --slaves says how many slaves there are"
        raise ConfigError(reason, path=path)
    if broker_id != MASTER_ID:
        return BrokerRole.SLAVE
    if not shape.is_sync and said != BrokerRole.SYNC_MASTER.name:
        return BrokerRole.ASYNC_MASTER
    if not shape.slaves:
        reason = "brokerRole=SYNC_MASTER: masters wait for slaves, and have none: add --slaves 1"
        raise ConfigError(reason, path=path)
    return BrokerRole.SYNC_MASTER


def _member(
    shape: Shape, name: str, role: BrokerRole, keys: Mapping[str, str], path: str
) -> Member:
    """Raises: ConfigError: its keys do not go together, or not with the others."""
    entries = [Entry(key, value, 0) for key, value in keys.items()]
    broker, store, _ = read_broker_config(
        entries, BrokerConfig(), MessageStoreConfig(), path=path or name
    )
    if role is BrokerRole.SYNC_MASTER and store.in_sync_replicas > shape.slaves + 1:
        reason = f"inSyncReplicas={store.in_sync_replicas}: a master and its slaves are "
        raise ConfigError(f"{reason}{shape.slaves + 1}", path=path)
    return Member(
        name,
        broker.broker_name,
        broker.broker_id,
        role,
        keys,
        broker.bind_address,
        store.store_path_root_dir,
    )
