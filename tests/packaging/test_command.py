"""The command where what it needs is missing: one line that says what to do, no traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

CLI = ("trio", "lark", "lz4", "zstandard", "typer", "rich")


def trocket(
    words: Sequence[str], blocked: Sequence[str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run the command in an interpreter in which `blocked` cannot be imported."""
    code = (
        "import sys\n"
        f"for name in {list(blocked)!r}: sys.modules[name] = None\n"
        "from trocket.cli.main import main\n"
        f"sys.exit(main({list(words)!r}))"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={"HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [[], ["keys"], ["store", "fsck", "."], ["up"], ["broker"], ["namesrv"]],
    ids=" ".join,
)
def test_without_its_packages_the_command_says_what_to_install(
    words: list[str], tmp_path: Path
) -> None:
    assert trocket(["--version"], CLI, tmp_path).stdout.startswith("trocket ")
    done = trocket(words, CLI, tmp_path)
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last == "trocket: the command needs more packages: pip install 'trocket[cli]'"
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []


INTEROP = ("psutil", "pytest", "pytest_html", "pytest_metadata", "xdist")


@pytest.mark.slow
@pytest.mark.parametrize("package", INTEROP)
def test_without_its_packages_the_harness_says_what_to_install(
    package: str, tmp_path: Path
) -> None:
    words = ["interop", "run", "--kind", "oracle"]
    done = trocket(words, [package], tmp_path)
    assert done.stderr == (
        "trocket: interop needs more packages: pip install 'trocket[cli,interop]'\n"
    )
    assert (done.stdout, done.returncode) == ("", 1)


def test_without_the_harness_s_packages_every_other_command_works(tmp_path: Path) -> None:
    done = trocket(["--version"], INTEROP, tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["up"], ["broker"], ["namesrv"]], ids=" ".join)
def test_where_python_lacks_posix_modules_the_command_says_where_it_runs(
    words: list[str], tmp_path: Path
) -> None:
    done = trocket(words, ["fcntl", "resource"], tmp_path)
    assert done.stderr == (
        "trocket: the command needs Linux or macOS; here only trocket's client runs\n"
    )
    assert (done.stdout, done.returncode) == ("", 1)


@pytest.mark.slow
def test_a_missing_module_of_another_kind_is_a_fault_and_shows_itself(tmp_path: Path) -> None:
    done = trocket(["namesrv"], ["trocket.namesrv.controller"], tmp_path)
    assert "ModuleNotFoundError" in done.stderr
    assert done.returncode == 1
