"""Shared parts of the commands: times, pairs, errors as one line, exit statuses."""

from __future__ import annotations

import logging

import pytest
import typer

from trocket.cli import session
from trocket.client import BrokerFailure, BrokersError, ConfigurationError, ConnectError

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1234", 1234),
        ("90s", NOW_MS - 90_000),
        ("5m", NOW_MS - 300_000),
        ("2h", NOW_MS - 7_200_000),
        ("1d", NOW_MS - 86_400_000),
        ("999999999d", 0),
        ("2023-11-14T22:13:20+00:00", NOW_MS),
    ],
)
def test_a_time_is_a_date_a_number_or_how_long_ago(text: str, expected_ms: int) -> None:
    assert session.read_time(text, "--from", NOW_MS) == expected_ms


@pytest.mark.parametrize("text", ["yesterday", "2w", "-5", "", "9" * 19, "9" * 5000])
def test_what_is_no_time_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end:
        session.read_time(text, "--from", NOW_MS)
    assert end.value.exit_code == 2
    error = capsys.readouterr().err
    assert "--from: " in error
    assert len(error) < 250


@pytest.mark.parametrize(
    ("text", "is_offset"),
    [
        ("0", True),
        ("999999999999", True),
        ("1000000000000", False),
        ("9" * 5000, False),
        ("", False),
    ],
)
def test_a_small_number_is_an_offset(text: str, is_offset: bool) -> None:
    assert session.is_offset(text) is is_offset


def test_pairs_have_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert session.read_pairs(["a=b=c", "d="], "--set") == {"a": "b=c", "d": ""}
    for bad in ("a", "=b"):
        with pytest.raises(typer.Exit) as end:
            session.read_pairs([bad], "--set")
        assert end.value.exit_code == 2


def raising(error: BaseException) -> int:
    async def main() -> None:
        raise error

    with pytest.raises(typer.Exit) as end:
        session.run(main)
    return int(end.value.exit_code)


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ConnectError("a:1", "cannot\nconnect"), 1, "trocket: a:1: cannot connect\n"),
        (ConfigurationError("no"), 2, "trocket: no\n"),
        (KeyboardInterrupt(), 130, ""),
        (ExceptionGroup("", [ConnectError("a:1", "x")]), 1, "trocket: a:1: x\n"),
        (BaseExceptionGroup("", [KeyboardInterrupt(), ConnectError("a:1", "x")]), 130, ""),
        (typer.Exit(3), 3, ""),
        (ExceptionGroup("", [typer.Exit(3)]), 3, ""),
    ],
)
def test_an_error_is_one_line_and_a_status(
    error: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == status
    assert capsys.readouterr().err == line


def test_a_fault_of_our_own_shows_itself() -> None:
    async def main() -> None:
        raise LookupError("bug")

    with pytest.raises(LookupError):
        session.run(main)


def test_what_the_client_warns_of_is_a_line_without_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def main() -> int:
        try:
            raise ConnectError("a:1", "away")
        except ConnectError:
            logging.getLogger("trocket.client").warning("tried\nagain", exc_info=True)
        return 5

    assert session.run(main) == 5
    assert capsys.readouterr().err == "trocket: tried again\n"


def test_a_part_is_shown_and_the_rest_is_an_error() -> None:
    failure = BrokerFailure("b", ConnectError("a:1", "away"))

    async def part() -> list[int]:
        raise BrokersError("listing", [failure], 2, [1])

    async def nothing() -> None:
        raise BrokersError("creating", [failure], 2, None)

    async def main() -> tuple[list[int], str]:
        return await session.whole_or_part(part())

    found, error = session.run(main)
    assert (found, error) == ([1], "listing: 1 of 2 brokers failed: b: a:1: away")
    with pytest.raises(typer.Exit):
        session.run(lambda: session.whole_or_part(nothing()))
    with pytest.raises(typer.Exit) as end:
        session.end_with("", error)
    assert end.value.exit_code == 1
    session.end_with("", "")
