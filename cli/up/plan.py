"""The brokers of `trocket up --masters M --slaves S`: names, ids, roles, ports, folders and keys.

Pure: from the flags and the entries of files to the settings of each broker, as lines of a
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

from ...broker.settings.config import MASTER_ID, BrokerConfig
from ...broker.settings.config_checks import read_broker_config
from ...common.config import ConfigError, Entry, key_of, property_line
from ...remoting.tls_config import TlsConfig
from ...store.config import BrokerRole, MessageStoreConfig

MASTERS_MAX = len(ascii_lowercase)
"""One for each letter of a broker's name."""

BROKERS_MAX = 32
"""On one machine: each is a process, with files of 1 GiB for its log."""

PORT_STEP = 10
"""Between the listen ports of two brokers: each broker also takes the ports 2 below and 1 above."""

_FIXED_KEYS = {
    "brokerName": "the brokers are called broker-a, broker-b and so on",
    "brokerId": "a master's is 0, and its slaves' are 1 and up",
    "haListenPort": "a master's is its listenPort + 1",
    "haMasterAddress": "a slave learns its master from the name server",
    "enableControllerMode": "--failover sets it",
    "controllerAddr": "--failover sets it",
}
"""Keys that a file must not set here, and their fixed values."""

_ALLOWED_VALUES = {
    ("brokerName", "broker-a"),
    ("brokerId", "0"),
    ("haListenPort", "0"),
    ("enableControllerMode", "false"),
    ("controllerAddr", ""),
}
"""Values of fixed keys that are ignored: defaults, and what Apache's own broker.conf has."""

_SUPPORTED = frozenset(
    key_of(field)
    for config in (BrokerConfig, MessageStoreConfig, TlsConfig)
    for field in dataclasses.fields(config)
)


class Shape(NamedTuple):
    """The numbers of brokers.

    Attributes:
      slaves: slaves per master.
      is_sync: each master is a SYNC_MASTER, even if a file sets another role.
      is_failover: a controller gives the roles; the first broker of each name begins as master.
    """

    masters: int
    slaves: int
    is_sync: bool
    is_failover: bool = False


class ConfigFile(NamedTuple):
    """The entries of one file.

    Attributes:
      path: for error messages only.
    """

    path: str
    entries: Sequence[Entry]


class Member(NamedTuple):
    """One broker.

    Attributes:
      name: the name of its folder and the prefix of its log lines: the broker's name, followed by
        the id if it is a slave.
      keys: all its settings.
      bind_address: the address it listens on.
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
        """Whether it follows a master, at the first start."""
        return self.role is BrokerRole.SLAVE

    def properties(self, namesrv_addr: str, controller_addr: str = "") -> str:
        """Its keys as lines of a broker.conf, followed by an empty line.

        Args:
          namesrv_addr: `host:port;host:port`.
          controller_addr: `host:port`; "": there is no controller.
        """
        pairs = {**self.keys, "namesrvAddr": namesrv_addr}
        if controller_addr:
            pairs |= {"enableControllerMode": "true", "controllerAddr": controller_addr}
        return "".join(property_line(key, value) for key, value in pairs.items()) + "\n"


def shape_of(
    masters: int | None,
    slaves: int | None,
    brokers: int | None,
    *,
    is_sync: bool,
    is_failover: bool = False,
) -> Shape | None:
    """The numbers of brokers from the flags; None: one, in the name server's process.

    Args:
      masters, slaves, brokers, is_sync, is_failover: the flags; None if not given.
    Raises: ConfigError: the flags contradict each other, or a number is out of range.
    """
    if brokers is not None and (masters is not None or slaves is not None):
        raise ConfigError("--brokers N means --masters N --slaves 0: give it without these two")
    if is_failover:
        _check_failover(slaves, brokers, is_sync=is_sync)
        slaves = 1 if slaves is None else slaves
    elif masters is None and slaves is None and brokers is None and not is_sync:
        return None
    flag, count = ("--brokers", brokers) if brokers is not None else ("--masters", masters)
    count = 1 if count is None else count
    shape = Shape(count, slaves or 0, is_sync, is_failover)
    if not 1 <= count <= MASTERS_MAX:
        raise ConfigError(f"{flag} {count}: give 1 to {MASTERS_MAX}")
    if shape.slaves < 0:
        raise ConfigError(f"--slaves {slaves}: give 0 or more")
    if count * (1 + shape.slaves) > BROKERS_MAX:
        total = count * (1 + shape.slaves)
        raise ConfigError(f"{total} brokers are too many: at most {BROKERS_MAX} on one machine")
    if is_sync and not shape.slaves:
        raise ConfigError("--sync: masters would wait for slaves, but have none: add --slaves 1")
    return shape


def _check_failover(slaves: int | None, brokers: int | None, *, is_sync: bool) -> None:
    """Raises: ConfigError: flags that contradict --failover."""
    if brokers is not None or slaves == 0:
        raise ConfigError("--failover: another broker takes a master's place: add --slaves 1")
    if is_sync:
        raise ConfigError(
            "--failover: a send is confirmed when all of the in-sync set have it: leave --sync out"
        )


def plan(
    shape: Shape,
    broker: BrokerConfig,
    store: MessageStoreConfig,
    common: ConfigFile,
    own: Mapping[str, ConfigFile],
) -> tuple[list[Member], list[str]]:
    """The brokers, masters first; and the warnings of the files in `own`.

    Args:
      broker, store: the result of `common` and the flags; listen_port is the first master's, or 0,
        and each broker gets a subfolder of the store's folders.
      own: files of single brokers by `Member.name`; they override `common`.
    Raises: ConfigError: a file sets a fixed key, or settings contradict each other.
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
    check_file(common)  # its warnings were logged already
    members, warnings = [], []
    for index, (name, (letter, broker_id)) in enumerate(zip(names, places, strict=True)):
        file = own.get(name, ConfigFile(common.path, ()))
        warnings += check_file(file)
        keys = {
            **_supported(common),
            **_addresses_and_folders(broker, store, name, index),
            **_supported(file),
        }
        keys.setdefault("traceTopicEnable", "true")
        role = _role(shape, keys, broker_id, file.path)
        role_keys = {"brokerId": str(broker_id), "brokerRole": role.name}
        if shape.slaves:
            keys.setdefault("slaveReadEnable", "true")
        # Slaves connect to brokerIP2. They are on this machine, which may not reach brokerIP1.
        keys.setdefault(
            "brokerIP2", reachable(keys.get("haListenAddress", store.ha_listen_address))
        )
        broker_name = f"broker-{letter}"
        keys |= {"brokerName": broker_name, **({} if shape.is_failover else role_keys)}
        members.append(_member(shape, name, role, broker_id, keys, file.path))
    return members, warnings


def reachable(bind_address: str) -> str:
    """An address of this machine at which a listener on `bind_address` answers."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(bind_address, bind_address)


def usage(namesrv: str) -> str:
    """Example lines with which users connect, each with its line end."""
    return (
        f'  Java    producer.setNamesrvAddr("{namesrv}");\n'
        f'  Go      producer.WithNameServer([]string{{"{namesrv}"}})\n'
        f'  Python  Producer("rocketmq://{namesrv}")\n'
    )


def check_file(file: ConfigFile) -> list[str]:
    """The warnings of a file, which is checked separately so that an error names its line.

    Raises: ConfigError: an entry is not valid, or sets a fixed key.
    """
    for entry in file.entries:
        if entry.key in _FIXED_KEYS and (entry.key, entry.value.strip()) not in _ALLOWED_VALUES:
            reason = f"{entry.key}: with several brokers {_FIXED_KEYS[entry.key]}"
            raise ConfigError(reason, path=file.path, line=entry.line)
    broker, store = BrokerConfig(), MessageStoreConfig()
    return read_broker_config(list(file.entries), broker, store, path=file.path)[2]


def _supported(file: ConfigFile) -> dict[str, str]:
    """The supported keys that a file sets; the last entry of a key counts."""
    return {entry.key: entry.value for entry in file.entries if entry.key in _SUPPORTED}


def _addresses_and_folders(
    broker: BrokerConfig, store: MessageStoreConfig, name: str, index: int
) -> dict[str, str]:
    """The keys for a broker's addresses and data folders."""
    port = broker.listen_port + index * PORT_STEP if broker.listen_port else 0
    metrics_port = broker.metrics_prom_exporter_port
    keys = {
        "metricsPromExporterPort": str(metrics_port + index if metrics_port else 0),
        "listenPort": str(port),
        "bindAddress": broker.bind_address,
        "brokerIP1": broker.broker_ip1,
        "storePathRootDir": f"{store.store_path_root_dir}/{name}",
        "preallocateCommitLog": str(store.preallocate_commit_log).lower(),
    }
    if store.store_path_commit_log:
        keys["storePathCommitLog"] = f"{store.store_path_commit_log}/{name}"
    return keys


def _role(shape: Shape, keys: Mapping[str, str], broker_id: int, path: str) -> BrokerRole:
    """Raises: ConfigError: a file makes all brokers slaves, or requires slaves that are missing."""
    configured = keys.get("brokerRole", BrokerRole.ASYNC_MASTER.name).strip()
    if configured == BrokerRole.SLAVE.name:
        reason = "brokerRole=SLAVE: with several brokers, use --slaves N instead"
        raise ConfigError(reason, path=path)
    if broker_id != MASTER_ID:
        return BrokerRole.SLAVE
    if not shape.is_sync and configured != BrokerRole.SYNC_MASTER.name:
        return BrokerRole.ASYNC_MASTER
    if not shape.slaves:
        reason = (
            "brokerRole=SYNC_MASTER: masters would wait for slaves, but have none: add --slaves 1"
        )
        raise ConfigError(reason, path=path)
    return BrokerRole.SYNC_MASTER


def _member(
    shape: Shape, name: str, role: BrokerRole, broker_id: int, keys: Mapping[str, str], path: str
) -> Member:
    """Raises: ConfigError: its keys contradict each other, or the number of slaves."""
    entries = [Entry(key, value, 0) for key, value in keys.items()]
    broker, store, _ = read_broker_config(
        entries, BrokerConfig(), MessageStoreConfig(), path=path or name
    )
    is_sync = role is BrokerRole.SYNC_MASTER
    if is_sync and store.in_sync_replicas > shape.slaves + 1:
        reason = f"inSyncReplicas={store.in_sync_replicas}: a master and its slaves are only "
        raise ConfigError(f"{reason}{shape.slaves + 1}", path=path)
    return Member(
        name,
        broker.broker_name,
        broker_id,
        role,
        keys,
        broker.bind_address,
        store.store_path_root_dir,
    )
