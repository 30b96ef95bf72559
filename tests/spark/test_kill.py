"""`kill -9` of a driver with all its workers while it archives; then it goes on.

How often is TROCKET_SPARK_KILLS (2): each costs the start of a session.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.blocking import Message, Producer
from trocket.testing import Broker

pytestmark = pytest.mark.slow

COUNT = 3000
KILLS = int(os.environ.get("TROCKET_SPARK_KILLS", "2"))
PROGRAM = Path(__file__).with_name("archiving.py")


def run(arguments, batches, delay_s) -> bool:
    """Run the program, and kill it some time after so many batches; whether it ended by itself."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    ) as process:
        assert process.stdout is not None
        try:
            seen = 0
            for line in process.stdout:
                if line.startswith("done"):
                    return True
                seen += line.startswith("batch")
                if seen >= batches:
                    threading.Event().wait(delay_s)
                    return False
            pytest.fail(f"the program ended after {seen} batches")
        finally:
            # The JVM is in its group; the Python workers end with it.
            os.killpg(process.pid, signal.SIGKILL)


def test_parquet_has_each_message_once_over_kills_of_the_driver(spark, tmp_path) -> None:
    rng = random.Random(KILLS)
    with Broker() as broker:
        broker.create_topic("Archive", queues=3)
        with Producer(broker.url, group="p") as producer:
            for begin in range(0, COUNT, 100):
                numbers = range(begin, begin + 100)
                producer.send_batch([Message("Archive", str(number)) for number in numbers])
        arguments = [broker.namesrv_address, "Archive", str(tmp_path)]
        kills = 0
        while not run(arguments, 10**6 if kills == KILLS else rng.randint(1, 5), rng.random()):
            kills += 1
        rows = spark.read.parquet(f"{tmp_path}/out").collect()
        assert len(rows) == COUNT
        assert sorted(int(row.text) for row in rows) == list(range(COUNT))
        assert len({(row.brokerName, row.queueId, row.queueOffset) for row in rows}) == COUNT
