"""Generator of the tables in docs/metrics.md: the metrics that the broker declares.

Run it after a change of a metric: `python -m trocket.cli.metrics_table docs/metrics.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from ..broker.metrics import exporter_metrics, rocketmq_metrics, trocket_metrics
from ..broker.pop import metrics as pop_metrics
from ..broker.replication import metrics as replication_metrics
from ..controller import metrics as controller_metrics
from ..namesrv import metrics as namesrv_metrics
from ..remoting.metrics import server_metrics
from ..remoting.metrics.families import Metric

TABLES: Final[dict[str, ModuleType]] = {
    "rocketmq": rocketmq_metrics,
    "pop": pop_metrics,
    "server": server_metrics,
    "trocket": trocket_metrics,
    "replication": replication_metrics,
    "namesrv": namesrv_metrics,
    "controller": controller_metrics,
    "exporter": exporter_metrics,
}
"""The modules by the names of the tables' markers in the page."""


def metrics_of(module: ModuleType) -> list[Metric]:
    """All metrics that a module declares, by name."""
    return sorted(set(_declared(vars(module))), key=lambda metric: metric.name)


def _declared(value: object) -> Iterator[Metric]:
    """The metrics in a value, which may be a table of tables."""
    if isinstance(value, Metric):
        yield value
    elif isinstance(value, Mapping):
        yield from _declared(tuple(value.values()))
    elif isinstance(value, tuple):
        for each in value:
            yield from _declared(each)


def with_tables(page: str) -> str:
    """The page with its tables replaced."""
    for name, module in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}{_table(metrics_of(module))}{end}{after}"
    return page


def _table(metrics: list[Metric]) -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind.value} | {', '.join(metric.labels)} | {metric.help} |\n"
        for metric in metrics
    ]
    return "\n| metric | type | labels | meaning |\n|---|---|---|---|\n" + "".join(rows) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
