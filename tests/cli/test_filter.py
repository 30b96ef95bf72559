"""`trocket filter` against a broker of our own with two filter servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.filter_server import FilterServer
from trocket.testing import Broker

from .conftest import Run

TOPIC, GROUP = "Orders", "billing"
WHOSE = ("-g", GROUP, "-t", TOPIC)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC, queues=1)
        yield broker


@pytest.fixture
def servers(broker: Broker) -> Iterator[list[FilterServer]]:
    """Two filter servers, sorted by address, which the name server knows."""
    with FilterServer(broker) as one, FilterServer(broker) as two:
        found = sorted([one, two], key=lambda server: server.address)
        broker.create_topic(TOPIC, queues=1)  # the broker has registered with them then
        yield found


@pytest.fixture
def java(tmp_path: Path) -> str:
    path = tmp_path / "KeepFifth.java"
    path.write_bytes("class KeepFifth { /* … */ }\r\n".encode())
    return str(path)


def test_a_class_is_put_listed_and_removed(
    run: Run, servers: list[FilterServer], java: str
) -> None:
    addresses = [server.address for server in servers]
    put = run("filter", "put", "org.shop.KeepFifth", java, *WHOSE, "--json")
    assert put.json == {"put": "org.shop.KeepFifth", "servers": addresses}
    for server in servers:
        assert server.classes == {(TOPIC, GROUP): Path(java).read_bytes()}
        assert "sourceLanguage" not in server.uploads[0].ext_fields
    listed = run("filter", "list", "--json").json
    assert listed[0] == {
        "server": addresses[0],
        "topic": TOPIC,
        "group": GROUP,
        "className": "org.shop.KeepFifth",
        "classCrc": len(Path(java).read_bytes()),
        "language": "java",
        "state": "ready",
        "error": "",
    }
    row = [addresses[1], TOPIC, GROUP, "org.shop.KeepFifth", "java", "31", "ready", ""]
    assert run("filter", "list", "-t", TOPIC).rows[1] == row
    removed = run("filter", "rm", *WHOSE, "--yes")
    assert removed.rows == [[address] for address in addresses]
    empty = run("filter", "list")
    assert (empty.rows, empty.err) == ([], "trocket: no filter server has a class\n")
    again = run("filter", "rm", *WHOSE, "--yes")
    assert again.status == 1
    assert again.err.count("there is no such class") == 2


def test_a_refusal_by_one_server_is_reported(
    run: Run, servers: list[FilterServer], java: str
) -> None:
    servers[0].refusal = "registerFilterClass error: ';' expected"
    ended = run("filter", "put", "KeepFifth", java, *WHOSE)
    assert (ended.status, ended.out) == (1, f"{servers[1].address}\n")
    assert "1 of 2 filter servers failed" in ended.err
    assert servers[0].address in ended.err
    assert "';' expected" in ended.err


@pytest.mark.parametrize(
    ("suffix", "flags", "language"),
    [
        (".py", (), "python"),
        (".txt", ("--language", "python"), "python"),
        (".py", ("--language", "java"), None),
    ],
)
def test_the_language_is_the_suffixs_or_the_flags(
    run: Run,
    servers: list[FilterServer],
    tmp_path: Path,
    suffix: str,
    flags: tuple[str, ...],
    language: str | None,
) -> None:
    path = tmp_path / f"keep{suffix}"
    path.write_text("def match(message): return True\n", encoding="utf-8")
    assert run("filter", "put", "keep", str(path), *WHOSE, *flags).status == 0
    assert servers[0].uploads[0].ext_fields.get("sourceLanguage") == language


def test_without_a_filter_server_nothing_can_be_done(run: Run, java: str) -> None:
    for words in (
        ("filter", "put", "KeepFifth", java, *WHOSE),
        ("filter", "rm", *WHOSE, "--yes"),
        ("filter", "list", "-t", TOPIC),
        ("filter", "list"),
    ):
        ended = run(*words)
        assert (ended.status, ended.out, ended.err.count("\n")) == (1, "", 1)
        assert "has a filter server; see filterServerNums" in ended.err


def test_a_topic_that_is_not_there_is_one_line(run: Run, java: str) -> None:
    ended = run("filter", "put", "KeepFifth", java, "-g", GROUP, "-t", "Nosuch")
    assert (ended.status, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "Nosuch" in ended.err


def test_files_that_cannot_be_sources(run: Run, tmp_path: Path) -> None:
    missing, binary, large = (tmp_path / name for name in ("No.java", "Bin.java", "Large.java"))
    binary.write_bytes(b"\xff")
    large.write_bytes(b"x" * 65_537)
    for path, status, text in (
        (missing, 1, "No.java cannot be read: No such file"),
        (binary, 1, "Bin.java is not UTF-8"),
        (large, 2, "has 65537 bytes"),
        (tmp_path / "keep", 2, "give --language java"),
    ):
        ended = run("filter", "put", "KeepFifth", str(path), *WHOSE)
        assert (ended.status, ended.out, ended.err.count("\n")) == (status, "", 1)
        assert text in ended.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("put", "../Keep", "{java}", *WHOSE), "not the full name of a class"),
        (("put", "Keep", "{java}", *WHOSE, "--language", "ruby"), "neither java nor python"),
        (("put", "Keep", "{java}", "-g", "a b", "-t", TOPIC), "illegal character"),
        (("put", "Keep", "{java}", "-g", GROUP), "Missing option"),
        (("rm", *WHOSE), "Add --yes to confirm"),
    ],
)
def test_wrong_usage_is_status_2(run: Run, java: str, words: tuple[str, ...], text: str) -> None:
    ended = run("filter", *(word.format(java=java) for word in words))
    assert (ended.status, ended.out) == (2, "")
    assert text in ended.err
