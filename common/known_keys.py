"""RocketMQ's own configuration keys, supported or not, with type and default.

They are data: the tables `keys/*.txt`, which are read only where a key in a user's file is not a
field of a dataclass, to explain it. In a table

    # begins a comment
    [section]          what it means that trocket does not support the keys below: `EFFECTS`
    key type default   `!` behind the key: one that RocketMQ itself calls important

The type is Java's; `-` stands for a default of "" or null, and parentheses around one that depends
on the machine. trocket supports the keys that are fields of a dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .config import KnownKey

_TABLES: Final = Path(__file__).with_name("keys")

_OURS: Final = "trocket"
"""The section of trocket's own keys."""

EFFECTS: Final[Mapping[str, str]] = {
    "batch": "how messages are laid out does not depend on it; compaction is not there yet",
    "cold": "flow control of cold data is not there",
    "consensus": "controllers do not vote here: their state is in one file, or in etcd",
    "delay": "delayed and timed messages come without it: they are kept in another way",
    "discovery": "name servers are those of namesrvAddr, and every registration is whole",
    "elsewhere": "it is a key of controller.conf: a controller is another process here",
    "filters": "SQL filters do not depend on it; tag filters need no setting",
    "fixed": "RocketMQ does not read this key either: the path follows from storePathRootDir",
    "gone": "RocketMQ itself does not read this key any more",
    "idle": "is not needed here",
    "lite": "lite topics and LMQ are not there yet",
    "memory": "files are written with pwrite and mapped to be read; there is nothing to tune here",
    "metrics": "metrics come without it, and so do the statistics that mqadmin shows",
    "netty": "sockets are trio's, not Netty's; there is nothing to tune here",
    "other": "it is not there yet",
    "pop": "pop consumption comes without it: its records are written and read without it",
    "replication": "acting masters and DLedger commit logs are not there",
    "retention": "files are removed at once and minimum offsets follow: nothing to tune here",
    "rocksdb": "there is no RocksDB; consume queues and configuration are in RocketMQ's own files",
    "security": "accounts are in config/auth.json and all in memory: there is nothing to tune here",
    "sent": "a name server serves its metrics (metricsExporterType=PROM) and sends them nowhere",
    "threads": "requests are served without thread pools and their queues",
    "tiered": "tiered storage is not there",
    "tls": "TLS is tls.enable, for the connections that a server opens, and tls.server.mode",
    "trocket": "it is trocket's own; RocketMQ does not know it",
    "transactions": "transactions come without it: half messages are kept in another way",
}
"""The effect of an unsupported key, by its section."""

ABSENT: Final[Mapping[str, tuple[str, ...]]] = {
    "cold": ("SET_COMMITLOG_READ_MODE", "UPDATE_COLD_DATA_FLOW_CTR_CONFIG"),
    "lite": ("LITE_SUBSCRIPTION_CTL", "POP_LITE_MESSAGE"),
    "replication": ("EXCHANGE_BROKER_HA_INFO",),
}
"""Request codes that no server serves while a section's text says that its feature is missing; a
test compares them with the servers' tables, so that the message goes when the feature comes."""


def read_keys(*tables: str) -> dict[str, KnownKey]:
    """The keys of some tables; a later table overrides an earlier one.

    Args:
      tables: names of files in `keys/`, without `.txt`.
    """
    known: dict[str, KnownKey] = {}
    for table in tables:
        known |= parse_keys((_TABLES / f"{table}.txt").read_text(encoding="ascii"))
    return known


def parse_keys(table: str) -> dict[str, KnownKey]:
    keys: dict[str, KnownKey] = {}
    section = ""
    for line in table.split("\n"):
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, kind, default = line.split(" ", 2)
            key = name.rstrip("!")
            keys[key] = KnownKey(
                key, kind, default, name.endswith("!"), EFFECTS[section], section == _OURS
            )
    return keys
