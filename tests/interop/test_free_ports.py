"""Ports that processes of this machine choose at the same time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trocket.interop import ports

CHILD = """
from trocket.interop import ports
ports.FIRST, ports.LAST = {first}, {last}
print(*(ports.free_port() for _ in range(20)), flush=True)
input()
"""


def test_no_two_processes_have_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_port()
    last = first + 60
    monkeypatch.setattr(ports, "FIRST", first)
    monkeypatch.setattr(ports, "LAST", last)
    with subprocess.Popen(
        [sys.executable, "-c", CHILD.format(first=first, last=last)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        theirs = {int(each) for each in child.stdout.readline().split()}
        ours = {ports.free_port() for _ in range(20)}
        child.communicate("\n")
    assert len(theirs) == len(ours) == 20
    assert not theirs & ours
    assert first not in theirs
