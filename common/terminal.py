"""Terminal output of commands and Spark jobs: lines, tables, times, and Ctrl-C as a flag.

Tables need rich, which comes with the extra `cli`; without it they are lines with tabs, as in a
pipe.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from rich.table import Table

EXIT_INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as shells have it: 128 and the signal's number."""


def say(line: str) -> None:
    """Print one line on standard error."""
    print(line, file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """A string with its control characters, such as `\\n` and `\\x1b`, escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def red(text: str, stream: TextIO) -> str:
    """A string in red if the stream is a terminal, and as it is otherwise or with NO_COLOR set."""
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[31m{text}\x1b[0m"


def plain(value: object) -> str:
    """A cell for scripts: numbers without separators, "-" for None."""
    return "-" if value is None else printable(str(value))


def grouped(value: object) -> str:
    """A cell for people: 1,234,567, six digits of a float, "yes" and "no", "-" for None."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return plain(f"{value:,.6g}" if isinstance(value, float) else value)


def show(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str = "",
    file: TextIO | None = None,
    cell: Callable[[object], str] = plain,
    spare: Sequence[str] = (),
) -> None:
    """Print a table on a terminal; into a pipe a line per row, with tabs between and no heading.

    Args:
      file: standard output, unless given.
      cell: formats a value: `plain` or `grouped`.
      spare: see `table`.
    """
    out = sys.stdout if file is None else file
    texts = [[cell(value) for value in row] for row in rows]
    if not (out.isatty() and has_rich()):
        out.writelines("\t".join(row) + "\n" for row in texts)
        out.flush()
        return
    from rich.console import Console

    console = Console(file=out)
    console.print(table(columns, texts, title=title, width=console.width, spare=spare))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    width: int | None = None,
    spare: Sequence[str] = (),
) -> Table:
    """A table of rich, without a heading where no column has a name; numbers stand at the right.

    A name is never broken. Where the width does not suffice, sentences are wrapped; then columns
    are left out, and named below; then the last one is cut.

    Args:
      width: of the terminal, in characters; None: that of standard output, or, where that is no
        terminal, no column is left out.
      spare: columns to leave out before others, the first one first; then those at the right are.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    shown: Mapping[int, int | None]
    if width is None and not sys.stdout.isatty():
        # A log is read later, by people who cannot make it wider and ask again.
        shown = dict.fromkeys(range(len(columns)))
    else:
        shown = _fitting(columns, rows, Console().width if width is None else width, spare)
    left_out = ", ".join(each for index, each in enumerate(columns) if index not in shown and each)
    made = Table(
        title=title or None,
        title_justify="left",
        show_header=any(columns),
        caption=f"not shown here: {left_out}" if left_out else None,
        caption_justify="left",
    )
    for index, wide in shown.items():
        is_number = bool(rows) and all(_is_number(row[index]) for row in rows)
        is_wrapped = wide is None or (
            _word(columns, rows, index) <= wide < _natural(columns, rows, index)
        )
        made.add_column(
            columns[index],
            justify="right" if is_number else "left",
            width=wide,
            no_wrap=not is_wrapped,
            overflow="fold" if is_wrapped else "ellipsis",
        )
    for row in rows:
        made.add_row(*(Text(row[index]) for index in shown))
    return made


_FRAME: Final = 3
"""Characters of a column besides its text; the table has one more."""
_SENTENCE_MIN: Final = 24
"""Characters below which a wrapped sentence is hard to read."""


def _fitting(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, spare: Sequence[str]
) -> dict[int, int]:
    """The widths of the columns that are shown, by their indexes."""
    shown = list(range(len(columns)))
    leave_out = [columns.index(name) for name in spare if name in columns]
    while True:
        widths = {index: _natural(columns, rows, index) for index in shown}
        over = sum(widths.values()) + _FRAME * len(widths) + 1 - width
        for index in sorted(widths, key=lambda index: -widths[index]):
            least = max(_word(columns, rows, index), _SENTENCE_MIN)
            cut = max(min(over, widths[index] - least), 0)
            widths[index] -= cut
            over -= cut
        if over <= 0:
            return widths
        if len(shown) <= 2:
            widths[shown[-1]] = max(widths[shown[-1]] - over, 1)
            return widths
        shown.remove(leave_out.pop(0) if leave_out else shown[-1])


def _natural(columns: Sequence[str], rows: Sequence[Sequence[str]], index: int) -> int:
    """The width in which nothing of a column is wrapped."""
    return max(map(len, (columns[index], *(row[index] for row in rows))))


def _word(columns: Sequence[str], rows: Sequence[Sequence[str]], index: int) -> int:
    texts = (columns[index], *(row[index] for row in rows))
    return max((len(word) for text in texts for word in text.split()), default=1)


def has_rich() -> bool:
    """Whether rich is installed."""
    try:
        import rich  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-").replace(",", "").replace(".", "", 1)
    return text in ("", "-") or digits.isdecimal()


def time_text(milliseconds: int | None) -> str:
    """A time in the machine's zone, from ms since 1970; "-" if there is none."""
    if milliseconds is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
    return moment.isoformat(sep=" ", timespec="milliseconds")


@contextlib.contextmanager
def interrupts(excuse: str = "") -> Iterator[Callable[[], bool]]:
    """Inside, Ctrl-C sets a flag instead of raising; yields a function that returns the flag.

    Outside of the main thread, the only one with signals, the flag is never set.

    Args:
      excuse: printed at the first Ctrl-C if the flag may be read much later; a second one then
        raises KeyboardInterrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    count = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if excuse and count > 1:
            raise KeyboardInterrupt
        if excuse:
            os.write(2, f"{excuse}\n".encode())

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: count > 0
    finally:
        if signal.getsignal(signal.SIGINT) is note:  # otherwise Spark has replaced the handler
            signal.signal(signal.SIGINT, before)
