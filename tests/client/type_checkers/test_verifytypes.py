"""Every public name of the client has a type that pyright knows without guessing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("remoting", "client", "blocking")
TIMEOUT_S = 600.0


def cannot_run(reason: str) -> None:
    """No pyright is a reason to skip, but not where everything is to be checked."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def copy_client(folder: Path) -> None:
    """Copy nothing but the client, as if it were installed: the checkout has tests, too."""
    package = folder / "trocket"
    package.mkdir()
    for name in ("__init__.py", "py.typed"):
        shutil.copy(ROOT / name, package)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))


def verify(folder: Path) -> dict[str, Any]:
    """pyright's report on the package `trocket` in a folder."""
    # It asks the first `python` of PATH where packages are, and reads no option for that here.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = [
        *(sys.executable, "-m", "basedpyright"),
        *("--verifytypes", "trocket", "--ignoreexternal", "--outputjson"),
    ]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        cannot_run(f"pyright was not done within {TIMEOUT_S} s")
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        # Its wheel has it whole: nothing is fetched when it runs.
        cannot_run(f"pyright cannot run: {(done.stderr or done.stdout).strip()[-500:]}")
    return report


INTERNAL: Final = "trocket.client.grpc."
"""What users do not import, and is about messages whose classes are made while the program runs."""


@pytest.mark.slow
def test_every_public_name_of_the_client_is_typed(tmp_path: Path) -> None:
    copy_client(tmp_path)
    report = verify(tmp_path)
    symbols = [
        symbol
        for symbol in report["typeCompleteness"]["symbols"]
        if symbol["name"].startswith(("trocket.client.", "trocket.blocking."))
        or symbol["name"].count(".") == 1
    ]
    assert len(symbols) > 500
    unknown = {
        symbol["name"]: [each["message"] for each in symbol["diagnostics"]]
        for symbol in symbols
        if symbol["isExported"]
        and not symbol["isTypeKnown"]
        and not symbol["name"].endswith(".logger")  # the modules' own
        and not symbol["name"].startswith(INTERNAL)
    }
    assert unknown == {}
