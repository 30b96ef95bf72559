"""Settings of the name server that a peer may read.

A list of allowed keys; those that may be changed are declared with the keys in `config.py`.
RocketMQ has a list of forbidden keys, and a wrong name in it allowed every client to write any file
(CVE-2023-37582). No path, address, port or list of permissions can be set from the wire.

Java counterpart: updateConfig and getConfig of RocketMQ 5.3.3
namesrv/processor/DefaultRequestProcessor.java.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from ..common.config import key_of, to_properties
from .config import NamesrvConfig

SETTABLE: Final = frozenset(
    key_of(field) for field in dataclasses.fields(NamesrvConfig) if "live" in field.metadata
)
"""The keys that UPDATE_NAMESRV_CONFIG may set."""

SHOWN: Final = SETTABLE | {
    "bindAddress",
    "clusterTest",
    "configStorePath",
    "kvConfigPath",
    "listenPort",
    "metricsExporterType",
    "metricsLabel",
    "metricsPromExporterHost",
    "metricsPromExporterPort",
    "productEnvName",
    "productNamesrvAddr",
    "serverChannelMaxIdleTimeSeconds",
}
"""The keys that GET_NAMESRV_CONFIG shows."""


def show(config: NamesrvConfig) -> bytes:
    """The body of a GET_NAMESRV_CONFIG answer: a line `key=value` for each shown key, sorted."""
    pairs = sorted((key, value) for key, value in to_properties(config) if key in SHOWN)
    return "".join(f"{key}={value}\n" for key, value in pairs).encode()
