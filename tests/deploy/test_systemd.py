"""deploy/systemd: the units' commands and folders, and what systemd-analyze says of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from .files import DATA, DEPLOY, KINDS, check_server_words, configuration

FOLDER: Final = DEPLOY / "systemd"

EXPOSURE_MAX: Final = 20
"""Of `systemd-analyze security`, in tenths: the units have 14, a unit without any setting 96."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here"
)


def unit_path(kind: str) -> Path:
    return FOLDER / f"trocket-{kind}.service"


def settings(kind: str) -> dict[str, list[str]]:
    """The values of each setting of a unit, of all its sections."""
    found: dict[str, list[str]] = {}
    for line in unit_path(kind).read_text(encoding="ascii").splitlines():
        if line and not line.startswith(("#", "[")):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_unit_runs_its_server_with_its_folder(kind: str) -> None:
    found = settings(kind)
    (command,) = found["ExecStart"]
    program, *words = command.split()
    assert program == "/opt/trocket/bin/trocket"
    assert check_server_words(words) == kind
    assert found["StateDirectory"] == [f"{Path(DATA).name}/{kind}"]
    folder = f"{DATA}/{kind}"
    assert found["WorkingDirectory"] == [folder]
    paths = [value for value in configuration(kind).values() if value.startswith("/")]
    assert all(path.startswith(folder) for path in paths)
    assert found["ProtectSystem"] == ["strict"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_unit_is_not_root_and_stops_by_sigterm(kind: str) -> None:
    found = settings(kind)
    users = (FOLDER / "trocket.sysusers.conf").read_text(encoding="ascii")
    assert f"\nu {found['User'][0]} " in users
    assert found["KillSignal"] == ["SIGTERM"]
    assert found["NoNewPrivileges"] == ["yes"]
    assert found["CapabilityBoundingSet"] == [""]
    # A wrong file is not tried again and again.
    assert found["RestartPreventExitStatus"] == ["2"]


def test_the_units_differ_in_nothing_but_what_they_must() -> None:
    hardening = {unit_path(kind).read_text().partition("LimitNOFILE=")[2] for kind in KINDS}
    assert len(hardening) == 1


def with_a_program(kind: str, folder: Path) -> str:
    """A copy of a unit whose program there is: systemd-analyze looks."""
    text = unit_path(kind).read_text(encoding="ascii")
    path = folder / unit_path(kind).name
    path.write_text(text.replace("/opt/trocket/bin/trocket", "/bin/true"), encoding="ascii")
    return str(path)


@needs_systemd
def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    paths = [with_a_program(kind, tmp_path) for kind in KINDS]
    words = ["systemd-analyze", "verify", "--man=no", *paths]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "trocket-" in line]
    assert ours == []
    if done.returncode != 0:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr[-200:]}")


@needs_systemd
def test_the_units_are_hardened(tmp_path: Path) -> None:
    paths = [with_a_program(kind, tmp_path) for kind in KINDS]
    words = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE_MAX}"]
    done = subprocess.run([*words, *paths], capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd-analyze is older than 250")
    assert done.returncode == 0, done.stdout + done.stderr
