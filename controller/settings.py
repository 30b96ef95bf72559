"""Settings of the controller that a peer may read.

A list of allowed keys; those that may be changed are declared with the keys in `config.py`. No
path, address, port or list of permissions can be set from the wire.

Java counterpart: updateControllerConfig and getControllerConfig of RocketMQ 5.5.0
controller/processor/ControllerRequestProcessor.java.
"""

from __future__ import annotations

from typing import Final

from ..common.config import live_keys, to_text
from .config import ControllerConfig

SETTABLE: Final = live_keys(ControllerConfig)
"""The keys that UPDATE_CONTROLLER_CONFIG may set."""

SHOWN: Final = SETTABLE | {
    "bindAddress",
    "configStorePath",
    "controllerDLegerGroup",
    "controllerDLegerPeers",
    "controllerDLegerSelfId",
    "controllerStorePath",
    "etcdEndpoints",
    "etcdPrefix",
    "listenPort",
    "metricsExporterType",
    "metricsLabel",
    "metricsPromExporterHost",
    "metricsPromExporterPort",
    "serverChannelMaxIdleTimeSeconds",
}
"""The keys that GET_CONTROLLER_CONFIG shows."""


def show(config: ControllerConfig) -> bytes:
    """The body of a GET_CONTROLLER_CONFIG answer: a line `key=value` for each shown key, sorted."""
    return to_text(config, SHOWN)
