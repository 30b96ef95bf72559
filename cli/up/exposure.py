"""The ports of `trocket up` that other machines can reach, and their check. Pure."""

from __future__ import annotations

from typing import Final

from ...auth.dangerous import BROKER, NAME_SERVER
from ...auth.open_ports import KEY, OPEN_TO_ALL, is_loopback, open_warnings
from ...broker.settings.config import BrokerConfig
from ...common.metrics_keys import MetricsExporterType
from ...namesrv.config import NamesrvConfig
from ...remoting.hosts import join_address

_METRICS: Final = "read the names of topics, groups and clients"


class ExposedError(Exception):
    """Servers without accounts would listen to other machines without `--insecure`."""


def warnings(namesrv: NamesrvConfig, broker: BrokerConfig) -> list[str]:
    """The log lines about what is open."""
    return [*open_warnings(NAME_SERVER, namesrv), *open_warnings(BROKER, broker)]


def check(namesrv: NamesrvConfig, broker: BrokerConfig) -> None:
    """Refuse to open ports to other machines.

    A broker with accounts is enough: RocketMQ's name server cannot have any, so this one's are
    another decision, and its log line says what it leaves open.

    Raises: ExposedError: the broker has no accounts, and it or the name server listens to other
      machines; the message says what they may do, and how to start it all the same.
    """
    if broker.has_accounts or not warnings(namesrv, broker):
        return
    rows = [
        ("name server", namesrv.bind_address, namesrv.listen_port, OPEN_TO_ALL["name server"]),
        ("broker", broker.bind_address, broker.listen_port, OPEN_TO_ALL["broker"]),
    ]
    for config in (namesrv, broker):
        if config.metrics_exporter_type is MetricsExporterType.PROM:
            host = config.metrics_prom_exporter_host or config.bind_address
            rows.append(("metrics", host, config.metrics_prom_exporter_port, _METRICS))
    rows = [row for row in rows if not is_loopback(row[1])]
    addresses = [join_address(host, port) for _, host, port, _ in rows]
    width = max(map(len, addresses))
    lines = ["without accounts, everyone who reaches these ports may use them:"]
    lines += [
        f"  {name:11}  {address:{width}}  {may}"
        for (name, _, _, may), address in zip(rows, addresses, strict=True)
    ]
    every = (namesrv, broker)
    opened = [each for each in every if each.allow_remote_administration]
    if opened:
        lines.append(f"They may delete topics and change settings, too: {KEY}=true.")
    else:
        lines.append(
            f"What deletes or changes settings is served to this machine only ({KEY}=false)."
        )
    lines.append(
        "Turn on accounts (authenticationEnabled=true), or add --insecure to start it so; without "
        "--host, or with bindAddress=127.0.0.1, it listens to this machine only (docs/security.md)."
    )
    raise ExposedError("\n".join(lines))
