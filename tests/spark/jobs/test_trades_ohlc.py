"""Bars of generated trades: row by row what a plain computation says, by every way to read them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import defaultdict

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.blocking import Message, Producer
from trocket.spark.jobs import trades_ohlc
from trocket.spark.jobs.trades_ohlc import bars, main, read_trades
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


def test_it_runs_as_a_file_as_spark_submit_runs_it() -> None:
    done = subprocess.run(
        [sys.executable, trades_ohlc.__file__, "--help"], capture_output=True, text=True, check=True
    )
    assert "--late-after" in done.stdout


def test_bars_are_those_of_a_plain_computation_by_every_way(spark, tmp_path) -> None:
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

            given = ["--name-server", broker.namesrv_address, "--checkpoint",
                     str(tmp_path / "checkpoint"), "--available-now"]  # fmt: skip
            assert main(given) == 0
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
