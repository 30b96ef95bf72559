"""A real Prometheus reads a broker under load: boards and alerts have data, promtool is content.

Prometheus and promtool are Debian's package `prometheus`; without it these tests are skipped, and
with CI=true they fail.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from trocket.client import (
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from trocket.native import extension
from trocket.remoting.acceptor import open_listener

ROOT = Path(__file__).resolve().parents[3]
GRAFANA = ROOT / "deploy" / "grafana"
HERE = Path(__file__).resolve().parent

DEADLINE_S = 60.0
READ_S = 1
"""Between two readings; Grafana's rate intervals become ten of them."""

VARIABLE = re.compile(r"\$(cluster|broker|topic|group|instance)\b")
THRESHOLD = re.compile(r"\s*[<>]=?\s*[0-9.]+$")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if missing:
        reason = f"{' and '.join(missing)} missing: apt-get install prometheus"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def promtool(*words: str, text: str = "") -> tuple[int, list[str]]:
    """Exit status, and the lines of both outputs."""
    done = subprocess.run(
        ["promtool", *words], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_rules_and_configuration_are_valid() -> None:
    for words in (
        ("check", "rules", str(GRAFANA / "alerts.yml")),
        ("check", "config", str(GRAFANA / "prometheus.yml")),
        ("test", "rules", str(HERE / "alerts_test.yml")),
    ):
        status, lines = promtool(*words)
        assert status == 0, lines


def test_each_alert_is_tested() -> None:
    alerts = set(re.findall(r"alert: (\w+)", (GRAFANA / "alerts.yml").read_text("utf-8")))
    tested = set(re.findall(r"alertname: (\w+)", (HERE / "alerts_test.yml").read_text("utf-8")))
    assert alerts == tested


# ---- a broker under load, and a Prometheus that reads it ----------------------------------


class Deployment:
    """A name server, a master, its slave, and a Prometheus.

    Attributes:
      url: of the name server.
      metrics: the address of the master's metrics.
      prometheus: the address of Prometheus's API.
    """

    def __init__(self, facts: dict[str, Any], metrics: str, prometheus: str) -> None:
        self.url = facts["namesrv"]
        self.metrics = metrics
        self.prometheus = prometheus

    def page(self, query: str = "") -> str:
        """A page of metrics."""
        with urllib.request.urlopen(self.metrics + query, timeout=DEADLINE_S) as answer:
            return str(answer.read().decode())

    def api(self, path: str, **parameters: str) -> Any:
        """The data of an answer of Prometheus."""
        query = urllib.parse.urlencode(parameters)
        url = f"{self.prometheus}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            tree = json.load(answer)
        assert tree["status"] == "success"
        return tree["data"]

    def has_data(self, expression: str) -> bool:
        """Whether an expression has some samples now."""
        return bool(self.api("query", query=expression)["result"])


def two_free_ports() -> int:
    """The first of two neighbours, for the metrics of master and slave."""
    while True:
        with open_listener("127.0.0.1", 0) as listener:
            port = int(listener.getsockname()[1])
            try:
                open_listener("127.0.0.1", port + 1).close()
            except OSError:
                continue
        return port


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("prometheus")
    keys = "metricsExporterType=PROM\npreallocateCommitLog=false\n"
    (folder / "broker.conf").write_text(keys, "ascii")
    port = two_free_ports()
    with open_listener("127.0.0.1", 0) as listener:
        namesrv_port = int(listener.getsockname()[1])
    (folder / "namesrv.conf").write_text(
        f"metricsExporterType=PROM\nmetricsPromExporterPort={namesrv_port}\n", "ascii"
    )
    broker = subprocess.Popen(
        [
            *(sys.executable, "-m", "trocket.cli.main", "up", "--json", "--masters", "1"),
            *("--slaves", "1", "-c", str(folder / "broker.conf"), "--home", str(folder / "home")),
            *("--namesrv-config", str(folder / "namesrv.conf")),
            *("--namesrv-port", "0", "--broker-port", "0", "--metrics-port", str(port)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    prometheus = None
    try:
        assert broker.stdout is not None
        facts = json.loads(broker.stdout.readline())
        targets = f'127.0.0.1:{port}", "127.0.0.1:{port + 1}'
        text = (GRAFANA / "prometheus.yml").read_text("utf-8")
        assert "127.0.0.1:5557" in text
        assert "scrape_interval: 15s" in text
        text = text.replace("127.0.0.1:5558", f"127.0.0.1:{namesrv_port}")
        text = text.replace("127.0.0.1:5557", targets).replace("15s", f"{READ_S}s")
        (folder / "prometheus.yml").write_text(text, "utf-8")
        shutil.copy(GRAFANA / "alerts.yml", folder)
        with open_listener("127.0.0.1", 0) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
        with (folder / "log").open("w") as log:
            prometheus = subprocess.Popen(
                ["prometheus", f"--config.file={folder / 'prometheus.yml'}",
                 f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"],
                stdout=log, stderr=log,
            )  # fmt: skip
        yield Deployment(facts, f"http://127.0.0.1:{port}/metrics", f"http://{address}")
    finally:
        for process in (prometheus, broker):
            if process is not None:
                process.terminate()
                process.communicate(timeout=30)


async def use_everything(url: str, stop: trio.CancelScope) -> None:
    """Use what boards show: consumers that are behind, transactions, timers, dead letters, pops."""

    async def send() -> None:
        async with Producer(url) as producer:
            while True:
                for topic in ("Orders", "Left", "Popped"):
                    await producer.send(Message(topic, b"x" * 200, keys=("k",)))
                await producer.send(Message("Later", b"x", delay_s=3600))
                await trio.sleep(0.05)

    async def transactions() -> None:
        ends = (TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN)
        async with TransactionProducer(
            url, group="PG", check=lambda message: TransactionState.UNKNOWN
        ) as producer:
            while True:
                for end in ends:
                    await producer.send_in_transaction(
                        Message("Paid", b"x"), lambda message, end=end: end
                    )
                await trio.sleep(0.2)

    async def consume() -> None:
        async with PushConsumer(url, group="billing", subscriptions={"Orders": "*"}) as consumer:
            async for message in consumer.messages(auto_ack=False):
                await message.retry(delay_level=-1)  # a dead letter
                await trio.sleep(0.1)  # stays behind

    async def leave() -> None:
        async with PushConsumer(url, group="gone", subscriptions={"Left": "*"}) as consumer:
            async for _ in consumer:
                break

    async def pop() -> None:
        async with SimpleConsumer(
            url,
            group="shipping",
            subscriptions={"Popped": "*"},
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer:
            while True:
                # Every second message is not acknowledged, and comes again.
                for message in (await consumer.receive(4, wait_s=1, invisible_s=10))[::2]:
                    await consumer.ack(message)
                await trio.sleep(0.2)

    with stop:
        async with Producer(url) as producer:
            for topic in ("Orders", "Left", "Later", "Paid", "Popped"):
                await producer.send(Message(topic, b"x"))
        async with trio.open_nursery() as nursery:
            for use in (send, transactions, consume, leave, pop):
                nursery.start_soon(use)


def expressions() -> dict[str, str]:
    """What to evaluate, by where it stands: all panels and variables of the board, all alerts."""
    board = json.loads((GRAFANA / "brokers.json").read_text("utf-8"))
    found = {
        f"panel {panel['id']} {panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel.get("targets", ())
    }
    for variable in board["templating"]["list"]:
        selector = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"])
        assert selector is not None
        found[f"variable {variable['name']}"] = selector[1]
    alerts = (GRAFANA / "alerts.yml").read_text("utf-8")
    for name, text in re.findall(r"alert: (\w+)\n\s+expr: (.*)\n", alerts):
        inner, count = THRESHOLD.subn("", text)
        assert count == 1, text
        found[f"alert {name}"] = inner
    return {
        place: VARIABLE.sub(".*", text).replace("$__rate_interval", f"{10 * READ_S}s")
        for place, text in found.items()
    }


async def test_each_expression_has_data_and_promtool_is_content(deployment: Deployment) -> None:
    stop = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(use_everything, deployment.url, stop)
        empty = await until_all_have_data(deployment)
        pages = {
            query: await trio.to_thread.run_sync(deployment.page, query)
            for query in ("", "?units=base")
        }
        stop.cancel()
    assert not empty, empty
    groups = deployment.api("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}, rules
    assert promtool("check", "metrics", text=pages["?units=base"]) == (0, [])
    status, lines = promtool("check", "metrics", text=pages[""])
    assert status == 3  # promtool's for a page that can be read and is not in its style
    unlike = {re.sub(r"^\S+ ", "", line) for line in lines}
    assert unlike == {
        'use base unit "seconds" instead of "milliseconds"',
        "label names should be written in 'snake_case' not 'camelCase'",
        'non-counter metrics should not have "_total" suffix',
        'non-histogram and non-summary metrics should not have "_count" suffix',
    }
    assert not [line for line in lines if line.startswith("trocket_")]


async def until_all_have_data(deployment: Deployment) -> dict[str, str]:
    """Evaluate the expressions until each has data; those that have none in time, with the text."""
    waiting = expressions()
    assert len(waiting) > 55
    if extension is None:  # a broker in pure Python has no fast paths
        waiting = {place: text for place, text in waiting.items() if "_fast_path_" not in text}
    with trio.move_on_after(DEADLINE_S):
        while waiting:
            found = await trio.to_thread.run_sync(
                with_data, deployment, dict(waiting), abandon_on_cancel=True
            )
            for place in found:
                del waiting[place]
            await trio.sleep(READ_S / 2)
    return waiting


def with_data(deployment: Deployment, texts: dict[str, str]) -> list[str]:
    """The places whose expressions have data now."""
    try:
        return [place for place, text in texts.items() if deployment.has_data(text)]
    except OSError:
        return []  # it has not started yet
