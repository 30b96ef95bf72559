"""`trocket consume --pop`, against a broker of our own."""

from __future__ import annotations

import pytest

from trocket.testing import Broker

from .conftest import Run


@pytest.mark.slow
def test_consume_by_pops(run: Run, broker: Broker) -> None:
    topic = "Popped"
    broker.create_topic(topic, queues=2)
    run("send", topic, "-", stdin="one\ntwo\n")
    pops = ("consume", topic, "--group", f"g{topic}", "--pop", "--from", "begin")
    shown = run(*pops, "--no-ack", "--invisible", "30", "--count", "2", "--json").json_lines
    assert sorted(each["body"] for each in shown) == ["one", "two"]
    assert all(each["deliveryAttempt"] == 1 and each["receipt"] for each in shown)
    assert all(each["invisibleUntil"] - each["firstPopTime"] == 30_000 for each in shown)
    assert run(*pops, "--idle", "0.2").out == ""
    broker.advance(seconds=60)
    again = run(*pops, "--idle", "15", "--count", "2").out.splitlines()
    assert sorted(line.rsplit("  ", 1)[1] for line in again) == ["one", "two"]
    assert all("attempt=2" in line for line in again)
    broker.advance(minutes=5)
    assert run(*pops, "--idle", "0.2", "--key", "k").out == ""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--pop",), "--pop needs --group"),
        (("--no-ack",), "--no-ack works with --pop only"),
        (("--pop", "--group", "g", "--from", "2h"), "give begin or end"),
        (("--pop", "--group", "g", "--invisible", "0"), "not above 0"),
    ],
)
def test_flags_of_pops_that_do_not_go_together(run: Run, words: tuple[str, ...], text: str) -> None:
    done = run("consume", "T", *words)
    assert done.status == 2
    assert text in done.err
