"""Results of Apache RocketMQ's own classes: apache_tables.json, written by ApacheTables.java."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(
        Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
    )
    return tables


def table(name: str) -> list[Any]:
    """The rows of one table; ApacheTables.java says what they hold."""
    rows: list[Any] = _tables()[name]
    assert rows
    return rows
