"""A few sets of brokers of a controller: the measuring program itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from trocket.bench.controllers import COLUMNS, measure
from trocket.interop.controller_mode import OURS, ControllerProcess, keys_of_controller
from trocket.interop.ports import free_port


@pytest.mark.slow
def test_a_few_sets_are_measured_and_get_other_masters(tmp_path: Path) -> None:
    keys = keys_of_controller(OURS, tmp_path, [free_port()], 0)
    controller = ControllerProcess(0, OURS, tmp_path / "controller", keys)
    controller.start()
    try:
        result = trio.run(partial(measure, sets=3, lost=2, seconds=0.2), controller)
    finally:
        controller.kill()
    assert result.memory_mb > 10
    assert 0 <= result.cpu_percent < 200
    assert result.elections_s is not None
    assert COLUMNS["sets"](result) == "3"
