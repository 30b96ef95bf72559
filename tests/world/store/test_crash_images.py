"""10,000 crash images: after each the store opens, and keeps what it promised. `make sim` has the
long form."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ...conftest import ROOT
from .workloads import WORKLOADS

SEED = int(os.environ.get("TROCKET_SIM_SEED", "1"))
IMAGES = 10_000
SHARE = 0.2
"""With a fifth of their images all workloads have their turn in both modes."""


@pytest.mark.slow
def test_10_000_crash_images_keep_every_promise():
    """N1 to N5, N7 and N10, by processes of their own: they use all cores."""
    command = [sys.executable, "-m", "tests.world", "store", "--json", "--depth2"]
    command += ["--images", str(IMAGES), "--seed", str(SEED), "--share", str(SHARE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    print(f"{report['images']} crash images from seed {SEED},", end=" ")
    print(f"{report['second']} of second crashes, {report['holes']} had to start read-only")
    print(json.dumps(report["by_workload"], indent=1))
    assert [failure["text"] for failure in report["failures"]] == []
    assert report["images"] >= IMAGES
    assert {*WORKLOADS} <= {*report["by_workload"]}
    assert done.returncode == 0
