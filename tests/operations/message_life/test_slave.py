"""The life of a message that is replicated: whether a slave has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.kit.lives import until
from trocket.client import Admin, Message, Producer
from trocket.interop.trocket_peer import TrocketBroker, TrocketPair
from trocket.operations.message_life import (
    Source,
    Stage,
    StageKind,
    StageState,
    collect_life,
    life_of,
)

pytestmark = pytest.mark.slow

KEYS = {"mappedFileSizeCommitLog": 16 << 20}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[TrocketPair]:
    pair = TrocketPair(tmp_path / "master", broker_keys=KEYS)
    try:
        pair.start()
        yield pair
        pair.stop_broker()
    finally:
        pair.close()


@pytest.fixture
def slave(master: TrocketPair, tmp_path: Path) -> Iterator[TrocketBroker]:
    keys = KEYS | {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": master.namesrv_address}
    folder = tmp_path / "slave"
    broker = TrocketBroker(folder, store=folder / "store", broker_keys=keys)
    try:
        broker.start()
        yield broker
        broker.stop_broker()
    finally:
        broker.close()


def test_a_slave_has_a_message_or_not(master: TrocketPair, slave: TrocketBroker) -> None:
    async def main() -> None:
        with anyio.fail_after(60):
            async with Admin(f"rocketmq://{master.namesrv_address}") as admin:
                await admin.create_topic("T", 1)
                async with Producer(admin.client) as producer:
                    sent = await producer.send(Message("T", "x"))

                async def on_slave() -> Stage | None:
                    life = life_of(await collect_life(admin, sent.offset_message_id))
                    found = [each for each in life.stages if each.kind is StageKind.SLAVE]
                    return found[0] if found and found[0].state is StageState.DONE else None

                stage = await until(on_slave)
                assert (stage.broker_id, stage.host) == (1, slave.broker_address)
                assert stage.known_from == (Source.SLAVE_LOG,)

    anyio.run(main, backend="trio")
