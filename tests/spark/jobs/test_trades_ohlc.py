"""Bars of generated trades: row by row what a plain computation says, by every way to read them."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.blocking import Message, Producer
from trocket.spark.jobs.demo import play
from trocket.spark.jobs.instruments import Instruments
from trocket.spark.jobs.running import JobError
from trocket.spark.jobs.trades_ohlc import bars, closed_bars, main, read_trades
from trocket.testing import Broker

pytestmark = pytest.mark.slow

WINDOW_MS = 60_000


def trades_of(now_ms, seed):
    """Trades of the last minutes, in the order in which they are sent: some late, some no JSON."""
    rng = random.Random(seed)
    found = []
    for number in range(400):
        age_ms = rng.choice([0, 500, 3000, 9000, 240_000])
        time_ms = now_ms - age_ms - rng.randrange(100)
        symbol = f"S{rng.randrange(5)}"
        price, quantity = rng.randrange(100, 200) / 4, rng.randrange(1, 50)
        body = {"symbol": symbol, "price": price, "quantity": quantity, "time": time_ms}
        found.append(json.dumps(body) if number % 50 else "no trade")
    return found


def expected_bars(messages):
    """The same by plain Python, of what is in the broker."""
    groups = defaultdict(list)
    for message in messages:
        try:
            trade = json.loads(message.body)
        except ValueError:
            continue
        if message.store_timestamp_ms - trade["time"] > 10_000:
            continue
        place = (trade["time"], message.store_timestamp_ms, message.queue_id, message.queue_offset)
        start = trade["time"] - trade["time"] % WINDOW_MS
        groups[trade["symbol"], start].append((place, trade["price"], trade["quantity"]))
    found = {}
    for key, rows in groups.items():
        rows.sort()
        prices = [price for _, price, _ in rows]
        volume = sum(quantity for _, _, quantity in rows)
        turnover = sum(price * quantity for _, price, quantity in rows)
        found[key] = (prices[0], max(prices), min(prices), prices[-1], volume,
                      pytest.approx(turnover / volume), len(rows))  # fmt: skip
    return found


def rows_of(frame):
    names = ("open", "high", "low", "close", "volume", "vwap", "trades")
    return {(row["symbol"], row["start"]): tuple(row[name] for name in names) for row in frame}


def test_bars_are_those_of_a_plain_computation_by_every_way(spark, tmp_path, capsys) -> None:
    with Broker(folder=tmp_path / "data") as broker:
        for topic in ("TopicTrade", "TopicBar", "TopicTradeLate"):
            broker.create_topic(topic, queues=2)
        with Producer(broker.url, group="p") as producer:
            for body in trades_of(broker.now_ms, seed=7):
                producer.send(Message("TopicTrade", body))
            # Minutes later: what closes every window before.
            broker.advance(minutes=3)
            last = {"symbol": "END", "price": 1.0, "quantity": 1, "time": broker.now_ms}
            producer.send(Message("TopicTrade", json.dumps(last)))
            sent = broker.messages("TopicTrade")
            broker.restart()  # now all queues are on disk, and the files say everything
            expected = expected_bars(sent)

            cluster = {"nameServer": broker.namesrv_address, "topic": "TopicTrade"}
            queues = spark.read.format("rocketmq").options(**cluster).load()
            root = broker._store_config.store_path_root_dir
            files = spark.read.format("rocketmq-store").option("topic", "TopicTrade").load(root)
            for messages in (queues, files):
                found = bars(read_trades(messages, 10), "1 minute").collect()
                assert rows_of(found) == expected

            given = ["--name-server", broker.namesrv_address]
            late_files = ["--late-files", str(tmp_path / "late")]
            assert main([*given, "--checkpoint", str(tmp_path / "checkpoint"), "--available-now",
                         "--quiet", *late_files]) == 0  # fmt: skip
            found = [json.loads(message.body) for message in broker.messages("TopicBar")]
            assert len(found) == len(rows_of(found))
            open_windows = {key for key in expected if key[0] == "END"}
            assert rows_of(found) == {
                key: bar for key, bar in expected.items() if key not in open_windows
            }
            late = broker.messages("TopicTradeLate")
            assert sum(message.tags == "unreadable" for message in late) == 8
            traded = sum(bar[-1] for bar in expected.values())
            assert len(late) + traded == len(sent)
            keys = {message.properties["__SHARDINGKEY"]: message.queue_id
                    for message in broker.messages("TopicBar")}  # fmt: skip
            assert set(keys) == {f"S{number}" for number in range(5)}
            assert spark.read.parquet(str(tmp_path / "late")).count() == len(late)
            # The same bars by a batch over the files, which says so itself.
            capsys.readouterr()
            files = str(tmp_path / "bars")
            line = [*given, "--store", root, "--bar-files", files, "--verify", "--json"]
            assert main(line) == 0
            summary = json.loads(capsys.readouterr().out)
            assert (summary["unreadable"], summary["bars"]) == (8, len(found))
            assert rows_of(spark.read.parquet(files).collect()) == rows_of(found)
            # And by one over the queues, which sees what is wrong in the topic.
            broken = found[0] | {"high": 1.0, "start": 60_000}
            with Producer(broker.url, group="p") as producer:
                producer.send(Message("TopicBar", json.dumps(found[0] | {"high": 1.0})))
                producer.send(Message("TopicBar", json.dumps(broken)))
            assert main([*given, "--batch", "--verify", "--json"]) == 1
            summary = json.loads(capsys.readouterr().out)
            assert summary["bars that differ"] == summary["bars only in the topic"] == 1
            assert summary["bars missing in the topic"] == 0


def test_a_trade_from_the_future_closes_no_window(spark) -> None:
    rows = [
        ("T", "b", 0, number, json.dumps(body).encode(), datetime.fromtimestamp(stored_s, UTC))
        for number, (body, stored_s) in enumerate([
            ({"symbol": "A", "price": 1.0, "quantity": 1, "time": 1_000_000}, 1000),
            ({"symbol": "A", "price": 1.0, "quantity": 1, "time": 9_000_000}, 1001),
            ({"symbol": "A", "price": 2.0, "quantity": 1, "time": 1_030_000}, 1030),
        ])
    ]  # fmt: skip
    names = "topic string, brokerName string, queueId int, queueOffset bigint, body binary"
    messages = spark.createDataFrame(rows, f"{names}, storeTimestamp timestamp")
    trades = read_trades(messages, 10)
    assert [row["problem"] for row in trades.collect()] == [None, "early", None]
    closed = closed_bars(trades, "1 second", 10).collect()
    assert [(row["start"], row["open"]) for row in closed] == [(1_000_000, 1.0)]


def test_instruments_are_read_again_when_they_change(spark, tmp_path, caplog) -> None:
    table = tmp_path / "table.csv"
    table.write_text("symbol,name\nA,One\n")
    instruments = Instruments(spark, str(table), every=2)
    bar = spark.createDataFrame([("A", 1), ("B", 1)], "symbol string, start bigint")

    def names():
        rows = instruments.join(bar).orderBy("symbol").collect()
        assert [row["known"] for row in rows] == [row["instrument"] is not None for row in rows]
        return [row["instrument"] and row["instrument"]["name"] for row in rows]

    assert names() == ["One", None]
    table.write_text("symbol,name\nA,One\nB,Another\n")
    assert names() == ["One", "Another"]
    table.write_text("symbol,name\nA,One\nA,Twice\n")
    assert names() == ["One", "Another"]
    assert "several rows of A" in caplog.text
    folder = tmp_path / "table"
    spark.createDataFrame([("A", 7)], "name string, lot int").write.parquet(str(folder))
    with pytest.raises(JobError, match="has no column 'symbol', only name, lot"):
        Instruments(spark, str(folder), every=2)


def test_the_demo_finds_what_plain_python_finds(spark, capsys) -> None:
    assert play("trades_ohlc", ["--count", "200", "--seed", "3", "--quiet"]) == 0
    assert "the same as in plain Python" in capsys.readouterr().out
