from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.filtersrv.workers.uploads import needs_linux
from trocket.filtersrv.filters import FilterError
from trocket.filtersrv.workers.sandbox import (
    Report,
    check_platform,
    missing_protections,
    parse_report,
)

ENOUGH = {
    "limits": "128 MiB",
    "privileges": "none",
    "life": "ends",
    "system calls": "seccomp",
    "files": "Landlock 7",
}


def without(*names: str) -> Report:
    return Report({k: v for k, v in ENOUGH.items() if k not in names}, dict.fromkeys(names, "gone"))


def test_a_report_is_read_line_by_line() -> None:
    assert parse_report("+limits: 128 MiB\n-user: root stays: so\n+life: ends") == Report(
        {"limits": "128 MiB", "life": "ends"}, {"user": "root stays: so"}
    )
    assert parse_report("") == Report({}, {})


def test_what_is_enough_is_enough() -> None:
    report = Report(ENOUGH, {"user": "not root", "namespaces": "not allowed"})
    assert missing_protections(report) == ""


@pytest.mark.parametrize("name", ["limits", "privileges", "life", "system calls"])
def test_none_of_these_can_be_done_without(name: str) -> None:
    assert missing_protections(without(name)) == f"{name} (gone)"


def test_files_are_kept_by_landlock_or_by_another_user() -> None:
    report = without("files")
    assert missing_protections(report) == "files (gone), user (not tried)"
    other_user = Report({**report.in_force, "user": "1879048200"}, report.lacking)
    assert missing_protections(other_user) == ""


def test_nothing_said_is_nothing_in_force() -> None:
    assert missing_protections(parse_report("")) == ", ".join(
        f"{name} (not tried)"
        for name in ("limits", "privileges", "life", "system calls", "files", "user")
    )


def test_other_systems_and_processors_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "platform", "darwin")
        with pytest.raises(FilterError, match=r"need Linux .*; this is darwin"):
            check_platform()
    monkeypatch.setattr(sys, "platform", "linux")
    uname = os.uname_result(("Linux", "host", "6.1", "#1", "riscv64"))
    monkeypatch.setattr(os, "uname", lambda: uname)
    with pytest.raises(
        FilterError, match="need a processor of type x86_64, aarch64; this is riscv64"
    ):
        check_platform()


LESSER_SYSTEM = """
import os, sys, trio
from trocket.filtersrv.filters import FilterError
from trocket.filtersrv.workers import FilterLanguage, WorkerFilter, WorkerLimits
from trocket.filtersrv.workers.inside import libc, seccomp

RETURN, LOAD, EQUAL = 0x06, 0x20, 0x15
EINVAL, ENOSYS, ALLOW = 0x5_0016, 0x5_0026, 0x7FFF_0000
step = seccomp._INSTRUCTION.pack

def call(number, *block):
    return [step(EQUAL, 0, len(block), number), *block]

no_landlock = call(444, step(RETURN, 0, 0, ENOSYS))
prctl = seccomp.CALLS["prctl"][seccomp.MACHINES[os.uname().machine][1]]
no_seccomp = call(
    prctl, step(LOAD, 0, 0, 16), step(EQUAL, 0, 1, 22), step(RETURN, 0, 0, EINVAL),
    step(RETURN, 0, 0, ALLOW),
)
lacks = {"landlock": no_landlock, "seccomp": no_seccomp}[sys.argv[1]]
libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
seccomp.install(b"".join([step(LOAD, 0, 0, 0), *lacks, step(RETURN, 0, 0, ALLOW)]))

async def main():
    worker = WorkerFilter(FilterLanguage.PYTHON, "a.A", b"match = print", WorkerLimits())
    try:
        await worker.compile()
        print("runs;", worker.protections)
    except FilterError as error:
        print("refused;", error)
    await worker.aclose()

trio.run(main)
"""
"""A system that has less than this one: calls fail as they do where they are not there."""


def on_lesser_system(without: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LESSER_SYSTEM, without],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_linux
@pytest.mark.slow
def test_where_there_is_no_seccomp_no_class_runs() -> None:
    assert on_lesser_system("seccomp") == (
        "refused; uploaded classes cannot be sandboxed here, lacking: "
        "system calls ([Errno 22] prctl: Invalid argument)"
    )


@needs_linux
@pytest.mark.slow
def test_where_there_is_no_landlock_a_class_runs_only_as_another_user() -> None:
    said = on_lesser_system("landlock")
    assert re.match(
        r"refused; .*lacking: files \(.*Function not implemented\), user \((it runs as|only root)"
        r"|runs; .*'user': '\d{10}'",
        said,
    )
