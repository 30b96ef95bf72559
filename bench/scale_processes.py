"""Messages per second of `trocket up --brokers N`, and what share of the CPU its load takes.

    python -m trocket.bench.scale_processes 127.0.0.1:10911,127.0.0.1:10921 Scale 10

is the load, a process: four connections to each broker with 64 sends of 128 bytes in flight. It
prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any, Final

import psutil
import typer

from trocket.bench.frames import SendTemplate
from trocket.bench.kit import percentiles, running, socket_address
from trocket.bench.load import Case, InFlight, Load, Tally
from trocket.bench.scale_curve import Curve
from trocket.bench.scale_meter import Caller, Curves, Pace, Task, cpu_s, with_a_core_each
from trocket.bench.scale_tables import create_topics
from trocket.interop.process import LineProcess, PeerError
from trocket.interop.trocket_peer import TrocketCluster

TOPIC: Final = "Scale"
QUEUES: Final = 4
CONNECTIONS: Final = 4
IN_FLIGHT: Final = 64
WARM_UP_S: Final = 2.0
PORT_STEP: Final = 10
"""Between the ports of two brokers of `trocket up`."""
LOAD_TIMEOUT_S: Final = 60.0


def addresses_of(cluster: TrocketCluster, brokers: int) -> list[str]:
    """HOST:PORT of each broker."""
    host, port = socket_address(cluster.broker_address)
    return [f"{host}:{port + PORT_STEP * number}" for number in range(brokers)]


def processes(task: Task) -> list[Curve]:
    """More and more brokers, with one process as the load of all.

    Raises: PeerError: the brokers or the load ended.
    """
    curves = task.curves("broker processes")
    for count in task.sizes:
        options = ("--metrics-port", "0", "--brokers", str(count))
        with running(TrocketCluster(task.folder / str(count), options=options)) as cluster:
            addresses = addresses_of(cluster, count)
            for address in addresses:
                with Caller(address) as caller:
                    create_topics(caller, [TOPIC], QUEUES)
            _measure(curves, cluster, addresses, task.pace)
            cluster.stop_broker()  # killed, it would leave its brokers to end a moment later
    return curves.all()


def _measure(curves: Curves, cluster: TrocketCluster, addresses: list[str], pace: Pace) -> None:
    found: list[dict[str, float]] = []
    for number in range(pace.rounds):
        pids = _family(cluster.pids[0])
        before_s = sum(map(cpu_s, pids))
        command = [sys.executable, "-m", __name__, ",".join(addresses), TOPIC, str(pace.seconds)]
        load = LineProcess(command, folder=cluster.folder, name=f"load-{number}")
        try:
            line = load.wait_line(
                lambda line: line.startswith("{"), timeout_s=pace.seconds + LOAD_TIMEOUT_S
            )
        finally:
            load.kill()
        result = json.loads(line)
        servers_s = sum(map(cpu_s, pids)) - before_s
        costs = {
            "share": 100 * result["cpu_s"] / (result["cpu_s"] + servers_s),
            "brokers_us": servers_s * 1e6 / result["answered"],
            "load_us": result["cpu_s"] * 1e6 / result["answered"],
        }
        found.append({**result, **costs})
    size = len(addresses)
    for what, unit, grows_as, member in (
        ("messages in all", "1/s", None, "rate"),
        ("p50 of a send", "ms", 1, "p50_ms"),
        ("p99 of a send", "ms", 1, "p99_ms"),
        ("a message, in the brokers", "µs CPU", 0, "brokers_us"),
        ("a message, in the load", "µs CPU", 0, "load_us"),
        ("the load's share of the CPU", "%", 0, "share"),
    ):
        claim = with_a_core_each(grows_as, size + 1)  # the load is a process, too
        curves.add(what, unit, claim, size, [each[member] for each in found])


def _family(pid: int) -> list[int]:
    """A process and all that it has started."""
    try:
        return [pid, *(each.pid for each in psutil.Process(pid).children(recursive=True))]
    except psutil.Error as error:
        raise PeerError(f"cannot read the processes of {pid}: {error}") from error


def measured(addresses: list[str], topic: str, seconds: float) -> dict[str, Any]:
    """Load brokers for some seconds after a warm-up.

    Returns: the rate, the refusals and the latencies without the warm-up; `answered`, messages with
      it, and the CPU of this process for these.
    """
    tally = Tally()
    case = Case("scale", CONNECTIONS * len(addresses), IN_FLIGHT)
    drivers = InFlight.of_case(SendTemplate.for_topic(topic, queue_count=QUEUES), case, tally)
    begin_s = time.process_time()
    with Load(case.name, [socket_address(each) for each in addresses], drivers, tally) as load:
        answered = load.run(min(WARM_UP_S, seconds))
        answered += load.run(seconds)
    found = percentiles(tally.latencies_s, 1000)
    return {
        "rate": tally.answered / seconds,
        "answered": answered,
        "refused": tally.refused,
        "p50_ms": found.p50,
        "p99_ms": found.p99,
        "cpu_s": time.process_time() - begin_s,
    }


def main(
    addresses: Annotated[str, typer.Argument(help="HOST:PORT of brokers, with commas between.")],
    topic: Annotated[str, typer.Argument(help="Has four queues.")],
    seconds: Annotated[float, typer.Argument(min=0.1, help="Measure for this time.")],
) -> None:
    """Load brokers, and print a line of JSON."""
    print(json.dumps(measured(addresses.split(","), topic, seconds)), flush=True)


if __name__ == "__main__":
    typer.run(main)
