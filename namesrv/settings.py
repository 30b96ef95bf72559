"""Settings of the name server that a peer may read.

A list of allowed keys; those that may be changed are declared with the keys in `config.py`.
RocketMQ has a list of forbidden keys, and a wrong name in it allowed every client to write any file
(CVE-2023-37582). No path, address, port or list of permissions can be set from the wire.

Java counterpart: updateConfig and getConfig of RocketMQ 5.3.3
namesrv/processor/DefaultRequestProcessor.java.
"""

from __future__ import annotations

from typing import Final

from ..common.config import live_keys, to_text
from .config import NamesrvConfig

SETTABLE: Final = live_keys(NamesrvConfig)
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
    return to_text(config, SHOWN)
