"""Requests about RocksDB, at a broker with files."""

from __future__ import annotations

import pytest

from trocket.remoting.response_codes import NOT_SET

from ...kit import embedded_broker

CHECK, EXPORT, ROLL_BACK = 354, 355, 200056


async def test_a_check_is_in_progress() -> None:
    async with embedded_broker() as broker:
        answer = await (await broker.connect()).ask(CHECK, {"topic": "T", "checkStoreTime": 0})
    assert (answer.code, answer.remark, answer.body) == (0, NOT_SET, b'{"checkStatus":2}')


@pytest.mark.parametrize(
    ("types", "code", "remark"),
    [
        ("topics;subscriptionGroups;consumerOffsets;", 0, "export done."),
        ("Topics; CONSUMEROFFSETS", 0, "export done."),
        ("", 0, "export done."),
        (
            "topics;queues",
            1,
            (
                "Unknown config type: queues; the types are topics, subscriptionGroups, "
                "consumerOffsets"
            ),
        ),
    ],
)
async def test_an_export_has_nothing_to_do(types: str, code: int, remark: str) -> None:
    async with embedded_broker() as broker:
        answer = await (await broker.connect()).ask(EXPORT, {"configType": types})
    assert (answer.code, answer.remark, answer.body) == (code, remark, b"")


async def test_an_export_without_types_is_refused() -> None:
    async with embedded_broker() as broker:
        answer = await (await broker.connect()).ask(EXPORT, {})
    assert answer.code == 1
    assert "configType" in (answer.remark or "")


async def test_no_pop_state_is_in_rocksdb() -> None:
    async with embedded_broker() as broker:
        answer = await (await broker.connect()).ask(ROLL_BACK, {})
    assert (answer.code, answer.remark, answer.body) == (0, NOT_SET, b"")
