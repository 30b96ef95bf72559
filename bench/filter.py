"""Cost of each kind of filter: network bytes, and CPU of the broker and the filter server.

    python -m trocket.bench.filter
    python -m trocket.bench.filter --kind expression --kind java --body-size 128

A topic with four queues holds messages of which every fifth matches. A consumer that pulls each
queue with one request at a time reads the topic repeatedly from beginning to end, with each kind of
filter in turn:

none         the broker sends everything, the consumer drops four of five
tag          the broker compares tags' hash codes
sql          the broker evaluates an SQL92 expression
named        a class name for an installed Python function, in the filter server
expression   a class name for an SQL92 expression, in the filter server
python       uploaded Python source, in a worker process of the filter server
java         uploaded Java source, in a JVM as worker process

A rate counts the tested messages, whether they match or not. The reference is `none`, in the same
run.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import trio
import typer
from rich.console import Console

from trocket.bench.crowd import Peer, answer_code
from trocket.bench.frames import pull_fields, send_fields
from trocket.bench.kit import Columns, chosen, resident_mb, running, show, with_children
from trocket.client.errors import ClientError
from trocket.filtersrv.filter_class_manager import crc_of
from trocket.interop.apache import broker_conf_text
from trocket.interop.process import LineProcess
from trocket.interop.trocket_peer import COMMAND, TrocketPair
from trocket.interop.usage import cpu_seconds
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.request_codes import RequestCode as Code
from trocket.remoting.response_codes import ResponseCode

TOPIC: Final = "FilterBench"
GROUP: Final = "FilterBenchGroup"
QUEUES: Final = 4
EVERY: Final = 5
"""One message of this number matches."""
MESSAGES: Final = 40_000
IN_FLIGHT: Final = 256
START_TIMEOUT_S: Final = 30.0
CLASS_FILTER: Final = 0x8
"""Bit of a pull's sysFlag. Source: common/sysflag/PullSysFlag.java."""

PYTHON_SOURCE: Final = b"""\
def match(message):
    return message.properties.get("kind") == "wanted"
"""
JAVA_SOURCE: Final = b"""\
package bench;

import org.apache.rocketmq.common.filter.FilterContext;
import org.apache.rocketmq.common.filter.MessageFilter;
import org.apache.rocketmq.common.message.MessageExt;

public class Wanted implements MessageFilter {
    @Override
    public boolean match(MessageExt message, FilterContext context) {
        return "wanted".equals(message.getProperty("kind"));
    }
}
"""
NAMED_MODULE: Final = "trocket_bench_filter"


@dataclass(frozen=True)
class Kind:
    """One kind of filter.

    Attributes:
      subscription, expression_type: the broker's filter; "": a filter server decides.
      class_name: the class at the filter server.
      language, source: the uploaded source; "": the operator has configured the class.
    """

    name: str
    subscription: str = ""
    expression_type: str = "TAG"
    class_name: str = ""
    language: str = ""
    source: bytes = b""


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("none", "*"),
        Kind("tag", "wanted"),
        Kind("sql", "kind = 'wanted'", "SQL92"),
        Kind("named", class_name="bench.Named"),
        Kind("expression", class_name="bench.Expression"),
        Kind("python", class_name="bench.wanted", language="python", source=PYTHON_SOURCE),
        Kind("java", class_name="bench.Wanted", language="java", source=JAVA_SOURCE),
    )
}


@dataclass
class FilterCost:
    """The cost of one kind of filter.

    Attributes:
      rate: tested messages per second.
      ratio: the rate divided by the rate of `none`.
      bytes_each: bytes of the answers' bodies per tested message.
      broker_us, filter_us: CPU of the broker, and of the filter server with its worker, per tested
        message.
      filter_mb: resident memory of filter server and worker.
    """

    kind: str
    rate: float
    ratio: float
    bytes_each: float
    broker_us: float
    filter_us: float
    filter_mb: float


@contextmanager
def servers(folder: Path) -> Iterator[tuple[TrocketPair, LineProcess, str]]:
    """A broker, a filter server, and the filter server's address."""
    package = folder / "package"
    info = package / "trocket_bench_filter-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: trocket-bench-filter\nVersion: 1\n"
    )
    (info / "entry_points.txt").write_text(f"[trocket.filters]\nwanted = {NAMED_MODULE}:wanted\n")
    (package / f"{NAMED_MODULE}.py").write_text(
        'def wanted(message):\n    return message.find(b"kind") == "wanted"\n'
    )
    classes = {
        "bench.Named": {"named": "wanted"},
        "bench.Expression": {"expression": "kind = 'wanted'"},
    }
    (folder / "classes.json").write_text(json.dumps(classes))
    pair = TrocketPair(folder / "cluster", broker_keys={"enablePropertyFilter": True})
    with running(pair) as cluster:
        keys = {
            "connectWhichBroker": cluster.broker_address,
            "filterServerIP": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "filterClassesFile": folder / "classes.json",
            "javaFilterEnable": True,
            "pythonFilterEnable": True,
            "filterUploadGroups": GROUP,
        }
        (folder / "filtersrv.conf").write_text(broker_conf_text(keys))
        filter_server = LineProcess(
            [*COMMAND, "filtersrv", "-c", str(folder / "filtersrv.conf")],
            folder=folder,
            name="filtersrv",
            environment={"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(package)},
        )
        try:
            line = filter_server.wait_line(
                lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S
            )
            yield cluster, filter_server, line.rpartition(" ")[2].strip()
        finally:
            filter_server.kill()


async def fill(broker: Peer, body_size: int, count: int) -> None:
    """Send the messages, over the queues in turn."""
    body = bytes(body_size)
    room = trio.Semaphore(IN_FLIGHT)

    def taken(answer: RemotingCommand | ClientError) -> None:
        answer_code(answer)
        room.release()

    for number in range(count):
        await room.acquire()
        wanted = "wanted" if number // QUEUES % EVERY == 0 else "other"
        properties = f"UNIQ_KEY\x01{number:032X}\x02kind\x01{wanted}\x02TAGS\x01{wanted}\x02"
        fields = send_fields(
            "FilterBenchProducer", TOPIC, number % QUEUES, properties, queue_count=str(QUEUES)
        )
        command = RemotingCommand(Code.SEND_MESSAGE_V2, fields, body)
        broker.submit(command, taken)
    for _ in range(IN_FLIGHT):
        await room.acquire()


class Reader:
    """Pulls all queues from beginning to end, and counts messages and bytes.

    Args:
      peer: the broker, or the filter server.
      kind: the filter.
    """

    def __init__(self, peer: Peer, kind: Kind) -> None:
        self.bytes = 0
        self.matched = 0
        self._peer = peer
        self._kind = kind

    async def read_all(self) -> None:
        """Read all queues once."""
        async with trio.open_nursery() as nursery:
            for queue_id in range(QUEUES):
                nursery.start_soon(self._read_queue, queue_id)

    async def _read_queue(self, queue_id: int) -> None:
        kind, offset = self._kind, 0
        fields: dict[str, object] = dict(
            pull_fields(GROUP, TOPIC, queue_id, 0, subscription=kind.subscription)
        )
        fields["expressionType"] = kind.expression_type
        if not kind.subscription:
            del fields["subscription"]
            fields["sysFlag"] = CLASS_FILTER
        while True:
            answer = await self._peer.ask(Code.PULL_MESSAGE, {**fields, "queueOffset": offset})
            if answer.code == ResponseCode.PULL_NOT_FOUND:
                return
            if answer.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
                raise RuntimeError(f"{kind.name}: code {answer.code}: {answer.remark}")
            offset = int(answer.ext_fields["nextBeginOffset"])
            self.bytes += len(answer.body)
            found = decode_messages(answer.body) if answer.body else []
            if kind.name == "none":
                self.matched += sum(message.find(b"kind") == "wanted" for message in found)
            else:
                self.matched += len(found)


async def measure(
    kind: Kind, cluster: TrocketPair, filter_server: LineProcess, address: str, seconds: float
) -> FilterCost:
    """Read with one kind of filter for `seconds`, after one round of warm-up."""
    async with trio.open_nursery() as nursery:
        peer = await Peer.connect(address if kind.class_name else cluster.broker_address, nursery)
        if kind.class_name:
            fields: dict[str, object] = {
                "topic": TOPIC, "consumerGroup": GROUP, "className": kind.class_name,
                "classCRC": crc_of(kind.source), "sourceLanguage": kind.language or "java",
            }  # fmt: skip
            answer = await peer.ask(Code.REGISTER_MESSAGE_FILTER_CLASS, fields, kind.source)
            if answer.code != ResponseCode.SUCCESS:
                raise RuntimeError(f"{kind.name}: {answer.remark}")
        await Reader(peer, kind).read_all()
        reader, rounds = Reader(peer, kind), 0
        filters = with_children(filter_server.pid)
        broker_s, filter_s = cpu_seconds(cluster.pids[0]), sum(map(cpu_seconds, filters))
        start_s = time.perf_counter()
        while time.perf_counter() - start_s < seconds:
            await reader.read_all()
            rounds += 1
        took_s = time.perf_counter() - start_s
        broker_s = cpu_seconds(cluster.pids[0]) - broker_s
        filter_s = sum(map(cpu_seconds, filters)) - filter_s
        nursery.cancel_scope.cancel()
    tested = rounds * MESSAGES
    if reader.matched != tested // EVERY:
        raise RuntimeError(f"{kind.name}: {reader.matched} of {tested} matched")
    return FilterCost(
        kind.name,
        tested / took_s,
        0.0,
        reader.bytes / tested,
        broker_s / tested * 1e6,
        filter_s / tested * 1e6,
        resident_mb(*filters) if kind.class_name else 0.0,
    )


COLUMNS: Final[Columns[FilterCost]] = {
    "filter": lambda one: one.kind,
    "msg/s": lambda one: f"{one.rate:,.0f}",
    "of none": lambda one: f"{one.ratio:.2f}",
    "bytes sent": lambda one: f"{one.bytes_each:,.0f}",
    "broker µs": lambda one: f"{one.broker_us:.1f}",
    "filter µs": lambda one: f"{one.filter_us:.1f}",
    "filter MB": lambda one: f"{one.filter_mb:.0f}" if one.filter_mb else "-",
}


def main(
    kind: Annotated[list[str] | None, typer.Option(help=f"Measure {', '.join(KINDS)}.")] = None,
    body_size: Annotated[int, typer.Option(help="Set the size of bodies in bytes.")] = 1024,
    seconds: Annotated[float, typer.Option(help="Set the time per kind.")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Read a topic with each kind of filter, and print the costs."""
    wanted = {"none": KINDS["none"], **chosen(kind, KINDS, "--kind")}

    async def run() -> list[FilterCost]:
        found: list[FilterCost] = []
        with (
            tempfile.TemporaryDirectory(prefix="trocket-filter-") as folder,
            servers(Path(folder)) as (cluster, filter_server, address),
        ):
            async with trio.open_nursery() as nursery:
                await fill(await Peer.connect(cluster.broker_address, nursery), body_size, MESSAGES)
                nursery.cancel_scope.cancel()
            for one in wanted.values():
                outcome = await measure(one, cluster, filter_server, address, seconds)
                outcome.ratio = outcome.rate / (found or [outcome])[0].rate
                found.append(outcome)
                Console(stderr=True).print(f"{one.name}: {outcome.rate:,.0f} msg/s")
        return found

    show(trio.run(run), COLUMNS, as_json=as_json)


if __name__ == "__main__":
    typer.run(main)
