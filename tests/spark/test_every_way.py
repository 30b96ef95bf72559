"""The formats in sessions of other kinds: executors of their own, Spark Connect, other versions.

Each costs a JVM or three, so they run only when asked for:

    TROCKET_SPARK_MASTERS='local-cluster[2,1,1024] connect:local[2]'
    TROCKET_SPARK_PYTHONS='/venvs/spark-4.0/bin/python /venvs/spark-4.2/bin/python'

The pythons have PySpark and trocket; without TROCKET_SPARK_MASTERS they run `local[2]`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.blocking import Message, Producer
from trocket.testing import Broker

pytestmark = [pytest.mark.slow, pytest.mark.java]

PYTHONS = os.environ.get("TROCKET_SPARK_PYTHONS", "").split()
MASTERS = os.environ.get("TROCKET_SPARK_MASTERS", "local[2]" if PYTHONS else "").split()
COUNT = 50
TIMEOUT_S = 580
STREAMS_SINCE = {"stream read": (4, 2), "stream write": (4, 1), "pushdown": (4, 1)}
PYTHONPATH = os.environ.get("PYTHONPATH", "")
"""Before the fixture `spark` puts this interpreter's packages there: others have theirs."""
VERSION = "import pyspark; print(pyspark.__version__)"


@pytest.mark.parametrize("master", MASTERS)
@pytest.mark.parametrize("python", PYTHONS or [sys.executable])
def test_every_way_works_or_says_what_it_needs(python: str, master: str, tmp_path: Path) -> None:
    version = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=True)
    major, minor = map(int, version.stdout.split(".")[:2])
    numbers = sorted(str(number) for number in range(COUNT))
    (tmp_path / "rows").mkdir()
    lines = (json.dumps({"body": text, "tags": "b"}) for text in numbers)
    (tmp_path / "rows" / "rows.json").write_text("\n".join(lines))
    with Broker(folder=tmp_path / "data") as broker:
        for topic in ("In", "Out", "Streamed"):
            broker.create_topic(topic, queues=2)
        with Producer(broker.url, group="p") as producer:
            for text in numbers:
                producer.send(Message("In", text, tags="a"))
        broker.restart()  # now all of it is in the queues' files
        root = broker._store_config.store_path_root_dir
        found = every_way(python, master, broker.namesrv_address, root, str(tmp_path))
        copies = sorted(message.body.decode() for message in broker.messages("Out"))
        streamed = sorted(message.body.decode() for message in broker.messages("Streamed"))
    expected = {
        "read": numbers, "store": numbers, "write": "stored", "stream write": "stored",
        "stream read": numbers, "missing topic": "knows the topic Nosuch", "pushdown": COUNT,
    }  # fmt: skip
    for way, since in STREAMS_SINCE.items():
        if (major, minor) < since:
            text = f"needs PySpark {since[0]}.{since[1]} or newer, and this is {major}.{minor}"
            assert text in found.pop(way)
            del expected[way]
    assert found == expected
    assert copies == numbers
    assert streamed == (numbers if "stream write" in expected else [])


def every_way(python: str, master: str, *arguments: str) -> dict[str, object]:
    """What the program says of each way."""
    pyspark = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__path__[0])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
        # A local-cluster starts its executors from there.
        "SPARK_HOME": pyspark.stdout.strip(),
        "PYTHONPATH": PYTHONPATH,
    }
    done = subprocess.run(
        [python, str(Path(__file__).with_name("every_way.py")), master, *arguments],
        capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"way"')]
    return {each["way"]: each["found"] for each in told}
