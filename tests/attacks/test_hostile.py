"""A few seconds of `python -m tests.attacks.hostile`, and its attacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .hostile.attacks import ATTACKS, ROOT, loopback


@pytest.mark.slow
def test_a_short_run_loses_nothing_and_prints_its_figures(tmp_path: Path) -> None:
    attacks = ("churn", "any request", "wrong batches")
    command = [sys.executable, "-m", "tests.attacks.hostile", "--minutes", "0.1", "--json"]
    for name in attacks:
        command += ["--only", name]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads(done.stdout)
    assert figures["confirmed"] > 0
    assert figures["not_consumed"] == figures["not_there_after_kill"] == 0
    assert set(figures["attacks"]) == set(attacks)
    assert all(rounds for rounds, _ in figures["attacks"].values())


def test_each_attack_has_a_name_and_says_what_it_does() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert all(attack.run.__doc__ for attack in ATTACKS)


@pytest.mark.parametrize("address", ["10.0.0.1:80", "example.org:80", "127.0.0.1", "0.0.0.0:80"])
def test_only_loopback_is_attacked(address: str) -> None:
    with pytest.raises(Exception, match=r"loopback|IP:PORT"):
        loopback(address)
