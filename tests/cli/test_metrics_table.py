"""docs/metrics.md and deploy/grafana: they name the metrics that the broker has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from runpy import run_path

from trocket.cli.metrics_table import TABLES, metrics_of, with_tables

ROOT = Path(__file__).resolve().parent.parent.parent
BOARDS = ROOT / "deploy" / "grafana"

NAMES = re.compile(r"\b((?:rocketmq|trocket|process)_[a-z0-9_]+)")


def test_the_page_has_the_metrics_that_are_declared() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == with_tables(page), "run: python -m trocket.cli.metrics_table docs/metrics.md"
    assert len(metrics_of(TABLES["exporter"])) == 89


def test_the_board_is_that_of_its_table() -> None:
    made = run_path(str(BOARDS / "make_boards.py"))["board"]()
    written = json.loads((BOARDS / "brokers.json").read_text(encoding="utf-8"))
    assert made == written, "run: python deploy/grafana/make_boards.py"


def test_boards_and_alerts_use_metrics_that_there_are() -> None:
    known = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    for module in TABLES.values():
        for metric in metrics_of(module):
            known |= {metric.name, *(metric.name + each for each in ("_bucket", "_sum", "_count"))}
    used = set()
    for name in ("brokers.json", "alerts.yml"):
        text = (BOARDS / name).read_text(encoding="utf-8")
        if name.endswith(".yml"):
            text = "\n".join(line for line in text.splitlines() if "expr:" in line)
        used |= set(NAMES.findall(text))
    assert len(used) > 30
    assert used <= known
