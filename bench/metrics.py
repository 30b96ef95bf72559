"""What metrics cost: sends with and without them, and a long run of readings.

    python -m trocket.bench.metrics                 # sends with and without metrics
    python -m trocket.bench.metrics --soak 600      # 1,000 topics and groups, read every 5 s

The first starts two brokers, and alternates between them as `trocket.bench.wire --beside` does. The
second sends to all topics, commits the groups' offsets, and prints how the broker's memory and the
time of a reading change.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import trio
import typer
from rich.console import Console
from rich.progress import track

from trocket.bench import kit
from trocket.bench.frames import ROCKETMQ_TYPE, send_fields
from trocket.bench.wire import (
    CaseResult,
    compare,
    measure,
    pin_to_cores,
    report_ratios,
    requests_of,
)
from trocket.bench.wire_load import CASES, Case
from trocket.common.terminal import table
from trocket.interop.peer import Cluster
from trocket.interop.trocket_peer import TrocketCluster
from trocket.remoting.acceptor import open_listener
from trocket.remoting.bodies import (
    ConsumerData,
    CreateTopicListRequestBody,
    HeartbeatData,
    SubscriptionData,
    TopicConfig,
)
from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode

READ_INTERVAL_S = 5.0
"""Between two readings while sends are measured; Prometheus reads every 15 to 60 s."""

SOAK_INTERVAL_S = 5.0
HEARTBEAT_S = 30.0
QUEUES = 4
TIMEOUT_S = 30.0


@dataclass
class Readings:
    """What the readers saw: seconds and bytes of each reading."""

    seconds: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def read(self, url: str) -> None:
        """Read once."""
        began_s = time.perf_counter()
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            self.sizes.append(len(answer.read()))
        self.seconds.append(time.perf_counter() - began_s)


@contextmanager
def read_meanwhile(url: str, readings: Readings, interval_s: float) -> Iterator[None]:
    """Read at an interval until the block ends."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(interval_s):
            readings.read(url)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def compare_sends(folder: Path, seconds: float, rounds: int, case: list[str] | None) -> None:
    """Print the ratio of a broker whose metrics are read to one that has none."""
    port = free_port()
    off = folder / "off.conf"
    off.write_text("metricsExporterType=DISABLE\npreallocateCommitLog=false\n")
    on = folder / "on.conf"
    on.write_text("metricsExporterType=PROM\npreallocateCommitLog=false\n")
    with_metrics = TrocketCluster(
        folder / "on", options=("-c", str(on), "--metrics-port", str(port))
    )
    without = TrocketCluster(folder / "off", options=("-c", str(off)))
    readings = Readings()
    interval_s = min(READ_INTERVAL_S, seconds / 2)  # so that each case is read
    template = requests_of("sends", ROCKETMQ_TYPE)

    def run(cluster: Cluster, one: Case) -> CaseResult:
        with ExitStack() as stack:
            if cluster is with_metrics:
                stack.enter_context(read_meanwhile(metrics_url(port), readings, interval_s))
            return measure(cluster, one, template, warm_up_s=1.0, seconds=seconds)

    cases = [*kit.chosen(case, {one.name: one for one in CASES}, "--case").values()]
    with kit.running(with_metrics), kit.running(without):
        pin_to_cores(with_metrics.pids[0], without.pids[0])
        pairs = compare((with_metrics, without), run, rounds, cases)
    Console().print(
        report_ratios(pairs, f"metrics read every {interval_s:g} s / none, {rounds} rounds")
    )
    median_ms = statistics.median(readings.seconds) * 1000
    Console().print(f"{len(readings.seconds)} readings, median {median_ms:.1f} ms")


def free_port() -> int:
    """A port that was free a moment ago."""
    with open_listener("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])


def metrics_url(port: int) -> str:
    """The address of the metrics on this machine."""
    return f"http://127.0.0.1:{port}/metrics"


async def load(address: str, count: int, messages_per_s: float, stop_s: float) -> int:
    """Send to all topics and commit offsets of all groups, until a time; return the sends."""
    client = RemotingClient()
    sent = 0

    async def call(code: RequestCode, fields: Mapping[str, object], body: bytes = b"") -> None:
        texts = {name: str(value) for name, value in fields.items()}
        answer = await client.call(address, RemotingCommand(code, texts, body), TIMEOUT_S)
        if answer.code:
            raise RuntimeError(f"{code.name}: {answer.remark}")

    async def heartbeats(*, task_status: trio.TaskStatus[None]) -> None:
        groups = [
            ConsumerData(
                group_name=f"Group{number}",
                subscription_data_set=[SubscriptionData(topic=f"Topic{number}", sub_string="*")],
            )
            for number in range(count)
        ]
        body = HeartbeatData(client_id="bench@1", consumer_data_set=groups).to_body()
        await call(RequestCode.HEART_BEAT, {}, body)
        task_status.started()  # the groups are there, so their offsets can be committed
        while True:
            await trio.sleep(HEARTBEAT_S)
            await call(RequestCode.HEART_BEAT, {}, body)

    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        topics = [
            TopicConfig(topic_name=f"Topic{n}", read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            for n in range(count)
        ]
        body = CreateTopicListRequestBody(topic_config_list=topics).to_body()
        await call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
        await nursery.start(heartbeats)
        began_s = trio.current_time()
        while trio.current_time() < stop_s:
            number = sent % count
            queue_id = sent // count % QUEUES
            fields = send_fields("PG", f"Topic{number}", queue_id)
            await call(RequestCode.SEND_MESSAGE_V2, fields, b"x" * 200)
            if number % 2:  # half of the groups stay behind
                where = {"consumerGroup": f"Group{number}", "topic": f"Topic{number}"}
                offset = {"queueId": queue_id, "commitOffset": sent // count // QUEUES}
                await call(RequestCode.UPDATE_CONSUMER_OFFSET, {**where, **offset})
            sent += 1
            await trio.sleep_until(began_s + sent / messages_per_s)
        nursery.cancel_scope.cancel()
    return sent


def soak(folder: Path, seconds: float, count: int, messages_per_s: float, as_json: bool) -> None:
    """Read the metrics of a broker with many topics and groups for a long time."""
    port = free_port()
    cluster = TrocketCluster(folder, options=("--metrics-port", str(port)))
    readings, memory_mb = Readings(), []
    with kit.running(cluster), ThreadPoolExecutor(1) as pool:

        async def main() -> int:
            stop_s = trio.current_time() + seconds
            return await load(cluster.broker_address, count, messages_per_s, stop_s)

        loading = pool.submit(trio.run, main)
        steps = range(max(int(seconds / SOAK_INTERVAL_S), 1))
        for _ in track(steps, console=Console(stderr=True), description="reading"):
            wait([loading], SOAK_INTERVAL_S)
            if loading.done() and loading.exception() is not None:
                break  # raised below
            readings.read(metrics_url(port))
            memory_mb.append(kit.resident_mb(cluster.pids[0]))
        sent = loading.result()
    facts = {
        "topics and groups": count,
        "sends a second": round(sent / seconds),
        "readings": len(readings.seconds),
        "samples text, MB": round(readings.sizes[-1] / 1e6, 2),
        "reading, median ms": round(statistics.median(readings.seconds) * 1000, 1),
        "reading, longest ms": round(max(readings.seconds) * 1000, 1),
        **{
            f"memory after {share} %, MB": round(_mean_at(memory_mb, share), 1)
            for share in (10, 30, 50, 70, 90)
        },
    }
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        Console().print(table(("figure", "value"), [[k, str(v)] for k, v in facts.items()]))


def _mean_at(values: list[float], share: int) -> float:
    """The mean of a tenth of the values, from a share of them in percent on."""
    begin = len(values) * share // 100
    return statistics.mean(values[begin : begin + max(len(values) // 10, 1)])


def main(
    seconds: Annotated[float, typer.Option(help="Measure each case for this time.")] = 5.0,
    rounds: Annotated[int, typer.Option(help="Repeat this often.", min=1)] = 5,
    case: Annotated[list[str] | None, typer.Option(help="Run only these cases.")] = None,
    soak_s: Annotated[float, typer.Option("--soak", help="Read for this time instead.")] = 0.0,
    count: Annotated[int, typer.Option(help="With --soak: topics, and groups.")] = 1_000,
    rate: Annotated[float, typer.Option(help="With --soak: sends a second.")] = 500.0,
    json_: Annotated[bool, typer.Option("--json", help="With --soak: print JSON.")] = False,
) -> None:
    """Measure what metrics cost."""
    with tempfile.TemporaryDirectory(prefix="trocket-bench-") as folder:
        if soak_s:
            soak(Path(folder), soak_s, count, rate, json_)
        else:
            compare_sends(Path(folder), seconds, rounds, case)


if __name__ == "__main__":
    typer.run(main)
