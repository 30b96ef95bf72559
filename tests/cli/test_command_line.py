"""The command line as a whole: help, shared flags, names of options, and what they import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from trocket.cli.app import COMMANDS, make_app
from trocket.cli.help_text import RENAMED
from trocket.cli.main import main
from trocket.testing import Broker

from .conftest import Run, are_completed, completions

HEAVY = ("rich", "pydantic", "trocket.client", "trocket.remoting.codec", "trio", "anyio", "asyncio")
"""What a help or a completion must not import: each takes longer than they may take as a whole."""


@pytest.fixture(scope="module")
def broker(broker: Broker) -> Broker:
    broker.create_topic("Orders")
    return broker


def imported(words: tuple[str, ...], environment: dict[str, str]) -> list[str]:
    """The heavy modules that a command imports."""
    script = (
        "import atexit, sys\n"
        f"heavy = {HEAVY!r}\n"
        "atexit.register(lambda: print('IMPORTED', *[n for n in heavy if n in sys.modules]))\n"
        "from trocket.cli.main import main\n"
        f"main({list(words)!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return re.findall(r"IMPORTED(.*)", done.stdout)[-1].split()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("--help",), ("--version",), ("topic", "--help"), ("consume", "--help"), ("up", "--help")],
    ids=" ".join,
)
def test_help_imports_nothing_that_takes_long(words: tuple[str, ...]) -> None:
    assert imported(words, {}) == []


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["consume Or", "lag bi", "broker info b", "to"])
def test_a_completion_imports_nothing_that_takes_long(typed: str, broker: Broker) -> None:
    environment = {
        "_TROCKET_COMPLETE": "complete_bash",
        "COMP_WORDS": f"trocket {typed}",
        "COMP_CWORD": str(len(typed.split())),
        "ROCKETMQ_URL": broker.url,
    }
    assert imported((), environment) == []


def test_the_help_has_the_commands_in_sections_that_a_new_user_reads_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    headings = re.findall(r"^(\S.*):$", out, re.MULTILINE)
    assert headings[:3] == ["Servers", "Messages", "Topics and groups"]
    assert headings[-1] == "Options"
    named = re.findall(r"^  ([a-z]+) ", out, re.MULTILINE)
    assert named == list(COMMANDS)


def every_command() -> list[tuple[str, Any]]:
    """All commands with their words, the hidden ones, too."""
    found = []

    def walk(command: Any, words: str) -> None:
        found.append((words, command))
        for name, each in getattr(command, "commands", {}).items():
            walk(each, f"{words} {name}".strip())

    walk(typer.main.get_command(make_app()), "")
    return found


@pytest.mark.slow
def test_every_command_has_help_with_an_example_and_is_in_the_docs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    with_examples_in_docs = ("store ", "pipeline ")
    count = 0
    for words, command in every_command():
        is_family = hasattr(command, "commands") and not command.invoke_without_command
        if is_family or command.hidden or not words or words.startswith(with_examples_in_docs):
            continue
        assert main([*words.split(), "--help"]) == 0, words
        assert f"Example: trocket {words}" in " ".join(capsys.readouterr().out.split()), words
        assert f"trocket {words}" in page, words
        count += 1
    assert count > 70


@pytest.mark.slow
def test_no_help_has_a_type_or_a_line_for_what_its_usage_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, command in every_command():
        if words.startswith("pipeline ") and words != "pipeline list":
            continue  # a job of Spark has its own help
        assert main([*words.split(), "--help"]) == 0, words
        out = capsys.readouterr().out
        assert out.startswith(f"Usage: trocket {words}".strip()), words
        assert not re.search(r"<(bool|str|int|float|list|path)", out), words
        assert "x>=" not in out, words
        assert "[required]" not in out, words
        del command


@pytest.mark.slow
def test_an_option_has_one_name_in_all_commands() -> None:
    old = {
        "consume": "--count", "topic units": "--count", "message": "--time", "dlq list": "--time",
        "dlq resend": "--time", "pop show": "--time",
    }  # fmt: skip
    for words, command in every_command():
        names = {name for each in command.params for name in each.opts}
        assert old.get(words) not in names, words
        assert not names & {"--max", "--num", "--since-time", "--name-server", "--nameserver"}
        if "--until" in names:
            assert "--since" in names, words


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("consume", "Orders", "--count", "1"), 0, ""),
        (("consume", "Orders", "--count=1"), 0, ""),
        (("message", "-t", "TBW102", "--time", "1h"), 1, "no such message"),
        (("topic", "units", "Orders", "nosuch:0", "--count", "1"), 1, "no broker is called"),
        (("send", "Orders", "--", "--count"), 0, ""),
        (("cluster", "info", "broker-a"), 0, ""),
        (("cluster",), 0, ""),
        (("group", "progress"), 0, ""),
        (("lag", "--count", "1"), 2, "No such option: --count"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_names_of_earlier_versions_still_work(
    run: Run, words: tuple[str, ...], status: int, text: str
) -> None:
    ended = run(*words)
    assert ended.status == status, ended.err
    assert text in ended.err


@pytest.mark.parametrize(
    "words",
    [
        "topic list --timeout inf",
        "lag --interval inf",
        "top --interval 1e9",
        "bench --size 9999999999",
    ],
)
def test_a_number_beyond_the_largest_is_refused_by_the_name_of_its_option(
    words: str, run: Run
) -> None:
    ended = run(*words.split())
    assert (ended.status, ended.out) == (2, "")
    option = words.split()[-2]
    assert ended.err.startswith(f"trocket: Invalid value for '{option}': ")


@pytest.mark.slow
def test_names_of_earlier_versions_are_in_no_help(capsys: pytest.CaptureFixture[str]) -> None:
    for words, name in (("consume", "--count"), ("message", "--dlq"), ("group", "progress")):
        assert main([words, "--help"]) == 0
        assert not re.search(rf"^  .*{name}", capsys.readouterr().out, re.MULTILINE)
    assert main(["cluster", "--help"]) == 0
    assert "namesrv-config" not in capsys.readouterr().out
    assert set(RENAMED.values()) <= {
        name for _, command in every_command() for each in command.params for name in each.opts
    }


@pytest.mark.parametrize(
    "place",
    [
        lambda flags: [*flags, "topic", "list"],
        lambda flags: ["topic", *flags, "list"],
        lambda flags: ["topic", "list", *flags],
        lambda flags: [flags[0], "topic", *flags[1:3], "list", *flags[3:]],
    ],
    ids=["first", "between", "last", "everywhere"],
)
def test_shared_flags_stand_anywhere(
    broker: Broker,
    place: Callable[[list[str]], list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROCKETMQ_URL", "127.0.0.1:1")
    assert main(place(["--json", "--url", broker.url, "--timeout=5"])) == 0
    assert capsys.readouterr().out == '["Orders"]\n'


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--json", "topic", "list", "--foo"], '"No such option: --foo'),
        (["topic", "--json", "show"], "\"Missing argument 'TOPIC'"),
        (["cluster", "list", "--json", "--url", "127.0.0.1:1"], "no name server answered"),
        (["keys", "zzqxjw", "--json"], "zzqxjw"),
        (["topic", "list", "--url", "nosuchprofile", "--json"], "there is no profile"),
        (["store", "fsck", "/nonexistent", "--json"], "/nonexistent"),
        (["store", "dump", "/nonexistent", "--json"], "/nonexistent"),
        (["dlq", "resend", "g", "--json", "--url", "127.0.0.1:1"], "no name server answered"),
        (["--json", "profile", "use", "nosuch"], "No such option"),
    ],
    ids=str,
)
def test_an_error_is_an_object_where_json_is_wanted(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) in (1, 2)
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err.startswith('{"error":"')
    assert text.strip('"') in caught.err
    assert caught.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (("consume", "Or"), ["Orders"]),
        (("send", "Or"), ["Orders"]),
        (("consume", "Orders", "--group", "bil"), ["billing"]),
        (("lag", "bil"), ["billing"]),
        (("broker", "info", "bro"), ["broker-a"]),
        (("topic", "create", "X", "--cluster", "Def"), ["DefaultCluster"]),
        (("--timeout", "2", "lag", "bil"), ["billing"]),
        (("lag", "xyz"), []),
    ],
    ids=lambda value: " ".join(value),
)
def test_names_in_the_cluster_are_completed(
    typed: tuple[str, ...], expected: list[str], broker: Broker, run: Run
) -> None:
    assert run("group", "create", "billing").status == 0
    environment = {**os.environ, "ROCKETMQ_URL": broker.url}
    assert are_completed(expected, *typed, environment=environment)


@pytest.mark.slow
def test_flags_before_a_command_are_completed() -> None:
    assert completions("--u") == ["--url"]
    assert completions("topic", "sh") == ["show"]
