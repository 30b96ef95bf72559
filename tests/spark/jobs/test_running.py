"""The frame of the jobs: errors as one line, statuses, summary, progress of streams."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.cli.main import main as trocket
from trocket.common.terminal import grouped, show
from trocket.spark import jobs
from trocket.spark.errors import OptionError
from trocket.spark.jobs import JOBS, load
from trocket.spark.jobs.demo import load_demo
from trocket.spark.jobs.flags import JobFlags
from trocket.spark.jobs.running import STARTING, JobError, Summary, follow, read_stream, reason, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
GIVEN = JobFlags(quiet=True)


@pytest.mark.parametrize("name", JOBS)
def test_every_job_has_help_a_demo_and_a_place_in_the_docs(name, capsys) -> None:
    assert trocket(["pipeline", name, "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"Example: trocket pipeline {name} --demo" in out
    assert "--name-server" in out
    demo = load_demo(name)
    assert all(callable(getattr(demo, each)) for each in ("fill", "arguments", "check"))
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{name}` \| \w", page, re.MULTILINE)


@pytest.mark.parametrize("name", JOBS)
def test_it_runs_as_a_file_as_spark_submit_runs_it(name) -> None:
    line = [sys.executable, load(name).__file__, "--help"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert f"Usage: {name}" in done.stdout


def test_the_jobs_are_listed(capsys) -> None:
    assert trocket(["pipeline", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {job["name"]: job["summary"] for job in listed} == JOBS
    assert trocket(["pipeline", "--help"]) == 0
    assert "Example: trocket pipeline trades_ohlc --demo" in capsys.readouterr().out
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert "trocket pipeline list" in page


def test_listing_jobs_imports_no_spark() -> None:
    program = (
        "import sys; from trocket.cli.main import main; main(['pipeline', 'list']);"
        " sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


def test_without_pyspark_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; from trocket.cli.main import main;"
        " sys.exit(main(['pipeline', 'trades_ohlc', '--help']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'trocket[cli,spark]'" in done.stderr


def test_a_summary_is_lines_or_json(capsys) -> None:
    for as_json in (False, True):
        summary = Summary("job", JobFlags(json=as_json))
        summary.row("rows", 12345)
        summary.add("late", 2)
        summary.add("late", 3)
        assert summary.finish(1) == 1
    *lines, text = capsys.readouterr().out.splitlines()
    assert lines == ["rows\t12,345", "late\t5"]
    assert json.loads(text) == {"job": "job", "status": 1, "rows": 12345, "late": 5}


def test_what_would_move_a_cursor_is_shown_as_text(capsys) -> None:
    show(["a"], [["\x1b[2J"], [None], [True], [1.5]], cell=grouped)
    assert capsys.readouterr().out == "\\x1b[2J\n-\nyes\n1.5\n"


def test_no_connection_is_one_line_and_status_2(spark, capsys) -> None:
    def work(session, given, summary):
        options = {"nameServer": "127.0.0.1:1", "topic": "T", "numRetries": "0"}
        return session.read.format("rocketmq").options(**options).load().count()

    assert run("job", GIVEN, work) == 2
    said = capsys.readouterr().err
    assert said.startswith("job: 127.0.0.1:1: no name server answered")
    assert said.count("\n") == 1


def test_wrong_use_is_reported_with_the_nearest_option(spark, capsys) -> None:
    def work(session, given, summary):
        return session.read.format("rocketmq").option("nameServers", "a:1").load().count()

    assert run("job", GIVEN, work) == 2
    assert "did you mean nameServer" in capsys.readouterr().err


def test_a_pyspark_without_streams_of_python_is_named(monkeypatch) -> None:
    # PySpark 4.0 ends such a query with an error of its worker, which hides the connector's.
    monkeypatch.setattr("pyspark.__version__", "4.0.5")
    with pytest.raises(OptionError, match=r"needs PySpark 4\.2 or newer, but this is 4\.0\.5"):
        read_stream(None, {})


def test_ctrl_c_is_status_130(spark) -> None:
    def work(session, given, summary):
        raise KeyboardInterrupt

    assert run("job", GIVEN, work) == 130


def test_ctrl_c_while_spark_is_imported_is_status_130(monkeypatch) -> None:
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "load", interrupted)
    assert trocket(["pipeline", "dlq_report"]) == 130


def test_ctrl_c_in_a_call_to_java_is_no_traceback(spark, caplog, tmp_path) -> None:
    end = tmp_path / "end"

    def wait(batches):
        deadline_s = time.monotonic() + 30
        while not end.exists() and time.monotonic() < deadline_s:
            threading.Event().wait(0.02)
        yield from batches

    def interrupt():
        deadline_s = time.monotonic() + 30
        while not spark.sparkContext.statusTracker().getActiveJobsIds():
            assert time.monotonic() < deadline_s
            threading.Event().wait(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    def work(session, given, summary):
        threading.Thread(target=interrupt).start()
        return session.range(1).mapInArrow(wait, "id bigint").count()

    try:
        assert run("job", GIVEN, work) == 130
    finally:
        end.touch()
        # Java has another thread for us now, and Spark looks for formats in the session of its
        # thread. Other tests have this session, too.
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
    assert "KeyboardInterrupt" not in caplog.text
    assert spark.range(3).count() == 3


@pytest.mark.java
@pytest.mark.matrix
def test_ctrl_c_while_spark_starts_is_status_130_and_leaves_no_java() -> None:
    line = [sys.executable, load("dlq_report").__file__, "--name-server", "127.0.0.1:1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT.parent), *sys.path])}
    job = subprocess.Popen(
        line, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        said = job.stderr.readline()  # of Java, which has begun
        job.send_signal(signal.SIGINT)
        # Java has the other end, too, so that all of it is there only when Java is gone.
        said += job.communicate(timeout=60)[1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 130
    assert STARTING in said
    assert "Traceback" not in said
    assert "Exception" not in said


def stream(spark, folder, name, write):
    folder.mkdir()
    (folder / "a.txt").write_text("1\n2\n")
    lines = spark.readStream.text(str(folder))
    writer = lines.writeStream.queryName(name).foreachBatch(write)
    place = str(folder.parent / f"{name} checkpoint")
    return writer.option("checkpointLocation", place).trigger(availableNow=True)


def test_streams_are_followed_to_their_end(spark, tmp_path) -> None:
    query = stream(spark, tmp_path / "in", "good", lambda rows, batch: rows.collect()).start()
    done = follow([query], quiet=True)["good"]
    assert (done.rows, done.batches, done.behind) == (2, 1, None)
    assert not query.isActive


def test_ctrl_c_stops_the_streams(spark, tmp_path, capfd) -> None:
    rate = spark.readStream.format("rate").load().writeStream.queryName("rate")
    rate = rate.foreachBatch(lambda rows, batch: os.kill(os.getpid(), signal.SIGINT))
    query = rate.option("checkpointLocation", str(tmp_path / "c")).start()
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        follow([query], quiet=True)
    assert not query.isActive
    assert signal.getsignal(signal.SIGINT) is before
    assert "Error" not in capfd.readouterr().err


def test_a_query_that_fails_stops_the_others_and_is_named(spark, tmp_path) -> None:
    def fail(rows, batch):
        raise ValueError("the topic is closed")

    other = spark.readStream.format("rate").load().writeStream.format("noop").queryName("other")
    other = other.option("checkpointLocation", str(tmp_path / "c")).start()
    failing = stream(spark, tmp_path / "in", "failing", fail).start()
    with pytest.raises(JobError, match=r"the query 'failing' failed: .*the topic is closed$"):
        follow([other, failing], quiet=True)
    assert not other.isActive


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[A_B.C] all wrong SQLSTATE: 1\nmore", "all wrong SQLSTATE: 1"),
        ("[X] Traceback:\n  File\na.b.MyError: here\n\na.OtherError: it is\n so", "it is"),
        ("", "ValueError"),
    ],
)
def test_the_line_that_says_something_is_found(text, expected) -> None:
    assert reason(ValueError(text)) == expected
