"""Lines, tables and times for people, and Ctrl-C as a question."""

from __future__ import annotations

import io
import os
import re
import signal
from collections.abc import Sequence

import pytest

from trocket.common.terminal import grouped, interrupts, plain, printable, show, table, time_text

NOW_MS = 1_700_000_000_000


def test_a_table_has_a_row_for_each_and_numbers_at_the_right() -> None:
    made = table(["Name", "Count"], [["a", "1"], ["[bold]", "23"]], title="t", width=80)
    assert made.row_count == 2
    assert [column.justify for column in made.columns] == ["left", "right"]


NAMES = ("Topic", "Broker", "Queue", "Committed", "End", "Lag", "Client")
LONG = [
    "order-events-v2",
    "broker-a-of-the-north",
    "3",
    "1048576",
    "1048600",
    "24",
    "10.0.0.7@4711",
]


def printed(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    from rich.console import Console

    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(table(columns, rows, width=width))
    return capture.get()


@pytest.mark.parametrize("width", [200, 100, 80, 50, 40])
def test_a_narrow_table_breaks_no_name_and_says_what_it_leaves_out(width: int) -> None:
    text = printed(NAMES, [LONG], width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert sum("order-events-v2" in line for line in lines) == 1
    shown = [name for name, cell in zip(NAMES, LONG, strict=True) if cell in text]
    assert shown == list(NAMES[: len(shown)])
    left_out = NAMES[len(shown) :]
    assert ("not shown here" in text) is bool(left_out)
    assert all(name in " ".join(text.split()) for name in left_out)


def test_a_narrow_table_leaves_out_first_what_is_spared_first() -> None:
    from rich.console import Console

    console = Console(width=60, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(table(NAMES, [LONG], width=60, spare=("Client", "End", "Committed", "none")))
    text = capture.get()
    assert all(cell in text for cell in ("order-events-v2", "broker-a-of-the-north", " 24 "))
    assert "not shown here: Committed, End, Client" in " ".join(text.split())


def test_the_last_column_of_two_is_cut_and_a_sentence_is_wrapped() -> None:
    text = printed(("Id", "Host"), [["7F0000", "a-very-long-host-name." * 4]], 40)
    assert text.count("…") == 1
    assert "7F0000" in text
    sentence = "how often the log is written to the disk " * 3
    text = printed(("Key", "What"), [["flush", sentence]], 50)
    assert max(map(len, text.splitlines())) <= 50
    assert text.count("…") == 0
    assert " ".join(re.findall(r"\w+", text)).count("written") == 3


def test_a_pipe_gets_a_line_with_tabs_for_each_row() -> None:
    out = io.StringIO()
    show(["name", "count"], [["a", 1234], [None, 5]], file=out)
    assert out.getvalue() == "a\t1234\n-\t5\n"


@pytest.mark.parametrize(
    ("value", "for_scripts", "for_people"),
    [
        (None, "-", "-"),
        (1234567, "1234567", "1,234,567"),
        (True, "True", "yes"),
        (0.5, "0.5", "0.5"),
        ("a\x1b[2J", "a\\x1b[2J", "a\\x1b[2J"),
    ],
)
def test_cells(value: object, for_scripts: str, for_people: str) -> None:
    assert plain(value) == for_scripts
    assert grouped(value) == for_people


def test_what_would_move_the_cursor_is_escaped() -> None:
    assert printable("a\nb\x1b") == "a\\nb\\x1b"
    assert printable("\u20ac \u00fc") == "\u20ac \u00fc"


def test_times_for_people() -> None:
    assert time_text(None) == "-"
    assert time_text(1 << 62) == str(1 << 62)
    assert time_text(NOW_MS).startswith("2023-11-1")


def test_ctrl_c_is_a_question_and_the_second_one_an_exception() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts("Wait") as is_interrupted:
        assert not is_interrupted()
        os.kill(os.getpid(), signal.SIGINT)
        assert is_interrupted()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
