"""Every `trocket` command that the documents show is one that there is, with those options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.docs.pages import PAGES, blocks, name
from trocket.cli.app import make_app

SHELLS = ("", "sh", "console")
INLINE = re.compile(r"`trocket ([^`]+)`")
SEPARATORS = frozenset({"|", "||", "&", "&&", ";", ">", "<"})


def commands(page: Path) -> Iterator[tuple[str, list[str], bool]]:
    """Place, words behind `trocket`, and whether it is to be whole: in a block, not in a text."""
    for block in blocks(page):
        if block.language not in SHELLS:
            continue
        text = block.text.replace("\\\n", " ")
        for line in text.splitlines():
            if "trocket " in line:
                yield from ((f"{name(page)}:{block.line}", words, True) for words in split(line))
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        for found in INLINE.findall(line):
            yield f"{name(page)}:{number}", shlex.split(found.replace("\\|", "|")), False


def split(line: str) -> Iterator[list[str]]:
    """The words of each call of `trocket` in a line of a shell."""
    try:
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        tokens = list(lexer)
    except ValueError:  # an output, with an odd number of quotes
        return
    words: list[str] | None = None
    is_first = True
    for token in [*tokens, ";"]:
        if token in SEPARATORS:
            if words:
                yield words
            words, is_first = None, True
        elif words is not None:
            words.append(token)
        else:
            if is_first and token == "trocket":
                words = []
            is_first = "=" in token and is_first  # a variable before the command


def disarmed(command: Any) -> Any:
    """A click command that parses, and does nothing."""
    command.callback = lambda *_, **__: None
    for each in getattr(command, "commands", {}).values():
        disarmed(each)
    return command


@pytest.fixture(scope="module")
def app() -> Any:
    return disarmed(typer.main.get_command(make_app()))


def parse(app: Any, words: list[str], *, is_whole: bool) -> str:
    """Read a command line; what is wrong with it, or ""."""
    try:
        app.main(words, prog_name="trocket", standalone_mode=False)
    except Exception as error:  # noqa: BLE001 - some versions of typer bundle click
        kind = type(error).__name__
        if kind == "NoArgsIsHelpError" or (kind == "MissingParameter" and not is_whole):
            return ""
        text = str(error)
        return "" if "does not exist" in text else f"{kind}: {text}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_is_one_that_there_is(
    page: Path, app: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    for place, words, is_whole in commands(page):
        # Not `trocket 0.1.0, process 4711`; and nothing that would be done while it is parsed.
        if not re.fullmatch(r"[a-z]+|--version|--help", words[0]):
            continue
        problem = parse(app, words, is_whole=is_whole)
        if problem:
            said = capsys.readouterr().err.strip().splitlines()[-1:]
            wrong.append(f"{place}: trocket {shlex.join(words)}: {problem} {''.join(said)}")
    assert wrong == []


def test_enough_commands_are_looked_at() -> None:
    assert sum(1 for page in PAGES for _ in commands(page)) > 100


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["lag", "billing", "--wach"], "No such option"),
        (["lagg", "billing"], "No such command"),
        (["topic", "create"], "Missing"),
        (["up", "--hom", "x"], "No such option"),
        (["up", "--home", "x"], None),
        (["lag", "billing", "--watch"], None),
    ],
)
def test_what_is_wrong_is_found(words: list[str], wrong: str | None, app: Any) -> None:
    problem = parse(app, words, is_whole=True)
    assert problem == "" if wrong is None else wrong in problem
