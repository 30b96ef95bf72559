"""Messages of kombu as messages of RocketMQ."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("kombu", reason="needs the extra `kombu`")

from trocket.integrations.kombu.payloads import DELAY_S_MAX, due_ms, is_expired, to_message

NOW_MS = 1_764_000_000_000  # 2025-11-24T16:00:00Z


def with_eta(eta: object) -> dict[str, Any]:
    return {"body": "", "headers": {"eta": eta}, "properties": {}}


def delayed(seconds: object) -> dict[str, Any]:
    return {"body": "", "headers": {}, "properties": {"delay_seconds": seconds}}


@pytest.mark.parametrize("eta", ["2025-11-24T17:00:30+01:00", "2025-11-24T16:00:30"])
def test_the_broker_delivers_at_the_eta(eta: str) -> None:
    assert due_ms(with_eta(eta), NOW_MS) == NOW_MS + 30_000


@pytest.mark.parametrize("eta", [None, "", "soon", 5, "2025-11-24T16:00:00.5", "1999-01-01"])
def test_what_is_no_later_time_is_delivered_at_once(eta: object) -> None:
    assert due_ms(with_eta(eta), NOW_MS) is None


def test_a_longer_eta_than_brokers_allow_is_left_to_the_worker() -> None:
    assert due_ms(with_eta("2026-11-24T16:00:00Z"), NOW_MS) == NOW_MS + DELAY_S_MAX * 1000


def test_a_delay_in_seconds() -> None:
    assert due_ms(delayed(1.5), NOW_MS) == NOW_MS + 1500
    assert due_ms(delayed(0), NOW_MS) is None


@pytest.mark.parametrize("seconds", [-1, DELAY_S_MAX + 1, "5"])
def test_an_invalid_delay_is_refused(seconds: object) -> None:
    with pytest.raises(ValueError, match="delay_seconds"):
        due_ms(delayed(seconds), NOW_MS)


@pytest.mark.parametrize(
    ("task_id", "keys"), [("a-1", ("a-1",)), ("a b", ()), ("", ()), (7, ()), ("x" * 200, ())]
)
def test_the_key_is_the_id_of_the_task(task_id: object, keys: tuple[str, ...]) -> None:
    payload = {"body": "", "headers": {"id": task_id}, "properties": {}}
    assert to_message("celery", payload, tag=None, due_ms=None).keys == keys


def test_a_time_to_live_begins_when_it_is_sent() -> None:
    payload = {"body": "", "properties": {"expiration": "2000"}}
    assert not is_expired(payload, NOW_MS, NOW_MS + 1999)
    assert is_expired(payload, NOW_MS, NOW_MS + 2000)
    assert not is_expired({"body": "", "properties": {}}, NOW_MS, NOW_MS + 10**9)
