"""Restarts and crashes of `trocket up --test-clock`, at the command of its control port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .blocking_client import Client, Code
from .controlled import Controlled, Refused, controlled

HOUR_MS = 3_600_000
SLOW_MS = 60_000
"""Longer than a stop may take."""


@pytest.fixture(params=["memory", "folder"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Controlled]:
    words = ("--memory",) if request.param == "memory" else ()
    with controlled(tmp_path, *words) as running:
        yield running


def texts(broker: Controlled, topic: str) -> list[bytes]:
    with Client(broker.broker) as client:
        return client.pull(topic)


def send(broker: Controlled, topic: str, body: bytes, **properties: str) -> int:
    with Client(broker.broker) as client:
        return client.send(topic, body, **properties).code


def test_a_restart_keeps_messages_ports_and_time(broker: Controlled) -> None:
    client = Client(broker.broker)
    assert client.send("Orders", b"bread").code == 0
    assert client.send("Orders", b"late", DELAY="18").code == 0  # in two hours
    frozen_ms = broker.ask("POST", "/freeze")["now_ms"]
    advanced_ms = broker.advance(HOUR_MS)
    assert broker.ask("POST", "/restart") == {"now_ms": advanced_ms, "frozen": True}
    assert advanced_ms == frozen_ms + HOUR_MS
    with client, pytest.raises(ConnectionError):
        client.send("Orders")
    assert texts(broker, "Orders") == [b"bread"]
    assert send(broker, "Orders", b"butter") == 0
    with Client(broker.namesrv) as names:
        assert names.route("Orders") is not None
    broker.advance(HOUR_MS)
    assert texts(broker, "Orders") == [b"bread", b"butter", b"late"]


def test_a_crash_keeps_what_was_synced(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("flushDiskType=SYNC_FLUSH\n")
    with controlled(tmp_path, "--memory", "-c", str(conf)) as broker:
        assert send(broker, "Orders", b"bread") == 0
        broker.ask("POST", "/crash", {"power_loss": True})
        assert texts(broker, "Orders") == [b"bread"]


def test_a_kill_keeps_what_was_written_and_a_power_failure_does_not(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"flushIntervalCommitLog={HOUR_MS}\n")
    with controlled(tmp_path, "--memory", "-c", str(conf)) as broker:
        assert send(broker, "Orders", b"bread") == 0
        broker.ask("POST", "/crash", {"power_loss": False})
        assert texts(broker, "Orders") == [b"bread"]
        assert send(broker, "Orders", b"butter") == 0
        broker.ask("POST", "/crash")
        assert b"butter" not in texts(broker, "Orders")


def test_a_folder_knows_no_power_failure(tmp_path: Path) -> None:
    with controlled(tmp_path) as broker:
        assert send(broker, "Orders", b"bread") == 0
        with pytest.raises(Refused, match="in memory") as refused:
            broker.ask("POST", "/crash", {"power_loss": True})
        assert refused.value.status == 409
        broker.ask("POST", "/crash")
        assert texts(broker, "Orders") == [b"bread"]


def test_faults_and_a_slow_disk_outlive_a_restart_and_do_not_hold_it_up(tmp_path: Path) -> None:
    with controlled(tmp_path) as broker:
        number = broker.fault("answer", int(Code.SEND_MESSAGE_V2), answer_code=1)
        hung = broker.fault("hang", int(Code.GET_MAX_OFFSET))
        client = Client(broker.broker)
        with client:
            client.begin(Code.GET_MAX_OFFSET, {"topic": "Orders", "queueId": "0"})
            while not broker.hits(hung):
                pass
        broker.ask("POST", "/disk", {"slow_ms": SLOW_MS})
        broker.ask("POST", "/restart")
        assert broker.ask("GET", "/disk")["slow_ms"] == SLOW_MS
        assert send(broker, "Orders", b"bread") == 1
        assert broker.hits(number) == 1


def test_a_store_that_failed_is_repaired_by_a_restart(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("flushDiskType=SYNC_FLUSH\n")
    with controlled(tmp_path, "-c", str(conf)) as broker:
        broker.ask("POST", "/disk", {"failing_fsync": True})
        send(broker, "Orders", b"bread")
        assert send(broker, "Orders", b"butter") != 0
        broker.ask("POST", "/disk", {"failing_fsync": False})
        assert send(broker, "Orders", b"butter") != 0
        broker.ask("POST", "/restart")
        assert send(broker, "Orders", b"milk") == 0
