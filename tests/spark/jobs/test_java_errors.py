"""The filter for standard error of the JVM."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trocket.spark.jobs.java_errors import without_lost_workers

LOST = """\
Traceback (most recent call last):
  File "/x/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/x/pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""
OF_ANOTHER_KIND = LOST.replace("BrokenPipeError", "ValueError")
OTHER = """\
Traceback (most recent call last):
  File "/x/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/x/pyspark.zip/pyspark/worker.py", line 95, in main
    raise
BrokenPipeError: [Errno 32] Broken pipe
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"one\n{LOST}two\n", "one\ntwo\n"),
        (LOST + LOST, ""),
        (OTHER, OTHER),
        (OF_ANOTHER_KIND, OF_ANOTHER_KIND),
        (LOST[:60], LOST[:60]),
        ("no traceback\n  indented\n", "no traceback\n  indented\n"),
    ],
)
def test_only_a_traceback_of_a_lost_worker_is_left_out(text: str, expected: str) -> None:
    assert "".join(without_lost_workers(text.splitlines(keepends=True))) == expected


@pytest.mark.slow
def test_a_child_writes_through_it_and_this_process_afterwards_does_not() -> None:
    written = f"begin\n{LOST}end\n"
    child = f"import sys; sys.stderr.write({written!r})"
    program = f"""
import subprocess, sys, threading
from trocket.spark.jobs.java_errors import THREAD, filtered
with filtered():
    child = subprocess.Popen([sys.executable, "-c", {child!r}])
child.wait()
for thread in threading.enumerate():
    if thread.name == THREAD:
        thread.join(30)
print("after", file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.stderr, done.returncode) == ("begin\nend\nafter\n", 0)
