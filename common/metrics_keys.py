"""The keys by which a server's metrics are switched on, common to brokers and name servers. Pure.

Java counterpart: the metrics keys of BrokerConfig.java and ControllerConfig.java of 5.5.0; Apache's
name server has metrics only as a controller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Protocol

from .config import ConfigError

_LABEL_NAME = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]*")


class MetricsExporterType(Enum):
    """How metrics leave a server. Source: RocketMQ MetricsExporterType."""

    DISABLE = "DISABLE"
    OTLP_GRPC = "OTLP_GRPC"
    PROM = "PROM"
    LOG = "LOG"


class MetricsKeys(Protocol):
    """What a configuration says about the port for metrics."""

    metrics_exporter_type: MetricsExporterType
    metrics_prom_exporter_port: int
    metrics_prom_exporter_host: str
    bind_address: str


def name_value_pairs(text: str) -> Iterator[tuple[str, str | None]]:
    """The names and values of `name:value,name:value`; None if there is no colon."""
    for pair in filter(None, map(str.strip, text.split(","))):
        name, colon, value = map(str.strip, pair.partition(":"))
        yield name, value if colon else None


def with_labels(own: Mapping[str, str], metrics_label: str) -> dict[str, str]:
    """The labels of all metrics: a server's own, and those of metricsLabel.

    Raises: ConfigError: metricsLabel is not as it should be.
    """
    labels = dict(own)
    for name, value in name_value_pairs(metrics_label):
        if value is None or not _LABEL_NAME.fullmatch(name) or name in labels:
            raise ConfigError(
                f"metricsLabel: {name!r} is not name:value with a new name of letters, digits "
                "and _; several look like zone:a,rack:b"
            )
        labels[name] = value
    return labels
