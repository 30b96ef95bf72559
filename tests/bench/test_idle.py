"""A few idle consumers: the measuring program itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from trocket.bench.idle import COLUMNS, measure


@pytest.mark.slow
def test_a_few_idle_consumers_are_measured(tmp_path: Path) -> None:
    short = partial(measure, topics=10, consumers=2, seconds=0.2, rest_s=0.1)
    result = trio.run(short, "trocket", tmp_path / "cluster")
    assert result.started_mb > 10
    assert result.idle_mb > 10
    assert 0 <= result.cpu_percent < 200
    assert COLUMNS["peer"](result) == "trocket"
