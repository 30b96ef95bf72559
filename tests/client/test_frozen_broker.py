"""One of two broker processes is frozen by SIGSTOP: every consumer goes on with the other one.

python -m trocket.bench.frozen --java 5.5.0 shows the figures beside those of Java's client.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.matrix import first_of
from trocket.bench.frozen import BROKERS, STARTS, TwoBrokers, play, two_brokers
from trocket.bench.frozen_clients import DOORS, MODES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    folder: Path = tmp_path_factory.mktemp("brokers")
    with two_brokers(folder) as started:
        yield started


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("frozen", first_of(BROKERS))
def test_every_client_goes_on_with_the_other_broker(
    brokers: TwoBrokers, frozen: str, start: str
) -> None:
    round_ = play(brokers, frozen, start, f"Frozen-{frozen}-{start}")
    assert round_.faults == []
    assert [(each.door, each.mode) for each in round_.consumers] == [
        (door, mode) for door in DOORS for mode in MODES
    ]
    assert len(round_.sends) > 0
