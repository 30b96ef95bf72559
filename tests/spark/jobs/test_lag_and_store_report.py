"""The report on generated data: from a broker's files, and from the broker itself."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.blocking import Message, Producer
from trocket.spark.jobs.demo import Stage
from trocket.spark.jobs.demo import lag_and_store_report as demo
from trocket.spark.jobs.lag_and_store_report import bytes_by_day, duplicates, hot_keys, main
from trocket.testing import Broker

pytestmark = pytest.mark.slow


def test_lags_loads_and_hot_keys_are_those_that_were_made(spark, tmp_path, capsys) -> None:
    with Broker(folder=tmp_path / "broker") as broker:
        stage = Stage(broker, tmp_path)
        made = demo.fill(stage.name_server, 300, seed=5)
        # A minute later one more, so that what was not read by then is old.
        broker.advance(minutes=1)
        with Producer(broker.url) as producer:
            place = ("TopicAudit", producer.send(Message("TopicAudit", "{}")).queue.queue_id)
        made["sent"][place] = made["sent"].get(place, 0) + 1
        made["lags"]["nightly", *place] += 1
        live = ["--name-server", stage.name_server, "--out", str(tmp_path / "live"), "--json"]
        assert main(live) == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["messages"], summary["lag"]) == (301, sum(made["lags"].values()))
        report = json.loads((tmp_path / "live" / "report.json").read_text())
        assert demo.problems(report, made) == []
        assert demo.problems(report, made | {"hot": 0}) == ["hot key"]

        # The files say the same, and know an earlier report. Their newest message is long past
        # for a broker that keeps messages for a second.
        (tmp_path / "live" / "report.json").write_text(
            json.dumps(report | {"at_ms": report["at_ms"] - 100_000, "lag": [
                row | {"lag": row["lag"] + 50} for row in report["lag"]]})
        )  # fmt: skip
        line = [*demo.arguments(stage, made), "--before", str(tmp_path / "live"), "--json"]
        line += ["--broker-name", report["lag"][0]["brokerName"], "--retention-hours", "0"]
        assert main(line) == 1
    summary = json.loads(capsys.readouterr().out)
    assert "warehouse" in summary["groups about to lose some"]
    assert demo.check(stage, made)
    # Grouped by people's names: the longest lag first.
    assert capsys.readouterr().out.startswith("warehouse\tTopicOrder\t")
    folder = stage.results
    report = json.loads((folder / "report.json").read_text())
    assert all(row["slope"] < 0 for row in report["lag"])
    assert spark.read.parquet(str(folder / "lag")).count() == len(made["lags"])
    assert sum(row["messages"] for row in report["arrivals"]) == 301
    kept = spark.read.parquet(str(folder / "bytes"))
    stored = sum(path.stat().st_size for path in (stage.store / "commitlog").iterdir())
    assert 300 * 100 < kept.groupBy().sum("bytes").collect()[0][0] <= stored
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(group in page for group in demo.GROUPS)


def test_days_keys_and_duplicates_of_messages(spark) -> None:
    def stored(day, hour):
        return datetime(2026, 11, day, hour, tzinfo=UTC)

    messages = spark.createDataFrame(
        [
            ("T", "a b", "1", 10, stored(1, 23)),
            ("T", "a", "1", 20, stored(2, 0)),
            ("T", None, "2", 30, stored(2, 1)),
            ("U", "a", "1", 40, stored(2, 2)),
            ("U", "c", None, 50, stored(2, 3)),
            ("U", "c", None, 50, stored(2, 3)),
        ],
        "topic string, keys string, uniqKey string, size int, storeTimestamp timestamp",
    )
    days = {(row[0], row[1]): (row[2], row[3]) for row in bytes_by_day(messages).collect()}
    assert days == {
        ("T", "2026-11-01"): (1, 10),
        ("T", "2026-11-02"): (2, 50),
        ("U", "2026-11-02"): (3, 140),
    }
    hot = {(row["topic"], row["key"]): (row["messages"], round(row["share"], 3))
           for row in hot_keys(messages).collect()}  # fmt: skip
    assert hot == {("T", "a"): (2, 0.667), ("U", "c"): (2, 0.667)}
    assert [tuple(row)[:3] for row in duplicates(messages).collect()] == [("T", "1", 2)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--out", "x"], "give either --store or --name-server"),
        (["--out", "x", "--store", "s", "--name-server", "a:1"], "give either"),
        (["--store", "s"], "--out"),
    ],
)
def test_wrong_use_is_status_2(given, expected, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(given)
    assert end.value.code == 2
    assert expected in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_wrong_report_in_before_is_an_error(spark, tmp_path, capsys) -> None:
    line = ["--name-server", "127.0.0.1:1", "--out", str(tmp_path / "out")]
    assert main([*line, "--before", str(tmp_path)]) == 2
    assert "report.json cannot be read" in capsys.readouterr().err
