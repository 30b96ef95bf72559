"""All attacks of `attacks.py` at once on a broker that serves honest clients.

    python -m tests.attacks.hostile                      an hour
    python -m tests.attacks.hostile --minutes 2 --json
    python -m tests.attacks.hostile --each 10            one attack after the other, 10 s each

Name server, broker and attacks run in separate processes. The broker's second name server hangs: it
accepts connections and never answers. SQL92 filters are enabled. This process runs the honest
clients: it sends at a set rate, consumes, and in the end kills the broker, starts it again and
reads the topic once more.

The exit status is 1 if a confirmed message was not consumed or is missing after the kill, if the
broker exited, or if it used more memory than allowed: the budget of its connections
(`--budget-mb`, the key remotingBytesMax), `--own-mb` for itself, and the state that the attacks
created, which is counted in the end (`stored_state.py`). After the attacks, the budget must be
unused, and only the latter two are allowed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from trocket import ClientError, ConsumeFromWhere, Message, Producer, PushConsumer
from trocket.bench.kit import percentiles
from trocket.common.terminal import table
from trocket.interop.ports import free_port
from trocket.interop.process import LineProcess, PeerError
from trocket.interop.trocket_peer import TrocketPair
from trocket.interop.usage import anonymous_bytes, cpu_seconds

from .attacks import ATTACKS, PAUSE_S, is_end, is_mark, start_attacks
from .stored_state import size_of, stored_state

TOPIC = "Honest"
QUEUES = 4
BODY_SIZE = 128
MIB = 1 << 20
SAMPLE_S = 1.0
CATCH_UP_S = 180.0
SENDERS = 8
SETTLE_S = 45.0
"""Time for the broker to free the memory of the attackers' connections, at most the duration of the
attacks: pulls are parked for 30 s, and the heap is trimmed every 10 s."""
ATTACKS_END_S = 120.0
"""Time for the attacks to end: a round takes at most a minute."""


@dataclass
class Honest:
    """The counts and latencies of the honest clients.

    Attributes:
      confirmed, consumed, read_again: numbers of messages: answered with SEND_OK, consumed
        meanwhile, and read after the broker was killed and started again.
      sent_s: when each of send_ms ended, monotonic seconds.
      send_ms, arrive_ms: from the call of `send` until its answer, tries that failed included; from
        the call until the consumer has the message.
      given_up: messages that were refused until CATCH_UP_S after the end.
      failed_tries: sends that raised; each was retried.
    """

    confirmed: set[int] = field(default_factory=set)
    consumed: set[int] = field(default_factory=set)
    read_again: set[int] = field(default_factory=set)
    send_ms: list[float] = field(default_factory=list)
    sent_s: list[float] = field(default_factory=list)
    arrive_ms: list[float] = field(default_factory=list)
    given_up: int = 0
    failed_tries: int = 0
    last_failure: str = ""


async def send(
    producer: Producer, honest: Honest, number: int, rate: float, until_s: float
) -> None:
    """One of `SENDERS` senders: the messages number, number + SENDERS and so on, at its times."""
    start_s = time.monotonic()
    count = 0
    while time.monotonic() < until_s:
        begin_s = time.monotonic()
        head = number.to_bytes(8, "big") + int(begin_s * 1e6).to_bytes(8, "big")
        while True:
            try:
                await producer.send(Message(TOPIC, head.ljust(BODY_SIZE, b"x")))
                break
            except ClientError as error:
                honest.failed_tries += 1
                honest.last_failure = str(error)
                if time.monotonic() > until_s + CATCH_UP_S:
                    honest.given_up += 1
                    return
                await asyncio.sleep(0.1)
        honest.sent_s.append(time.monotonic())
        honest.send_ms.append((honest.sent_s[-1] - begin_s) * 1000)
        honest.confirmed.add(number)
        number += SENDERS
        count += 1
        await asyncio.sleep(max(0.0, start_s + count * SENDERS / rate - time.monotonic()))


async def send_all(producer: Producer, honest: Honest, rate: float, until_s: float) -> None:
    """Send at a total rate until a time."""
    await asyncio.gather(*(send(producer, honest, at, rate, until_s) for at in range(SENDERS)))


async def warm_up(producer: Producer, honest: Honest) -> None:
    """Create the topic, and wait until the consumer reads it: neither is measured."""
    number = 1 << 62
    while number not in honest.consumed:
        try:
            head = number.to_bytes(8, "big") + int(time.monotonic() * 1e6).to_bytes(8, "big")
            await producer.send(Message(TOPIC, head.ljust(BODY_SIZE, b"x")))
        except ClientError as error:
            honest.last_failure = str(error)
        await asyncio.sleep(0.5)
    honest.arrive_ms.clear()


async def consume(consumer: PushConsumer, honest: Honest) -> None:
    async for message in consumer:
        number = int.from_bytes(message.body[:8], "big")
        if number not in honest.consumed:
            honest.consumed.add(number)
            sent_s = int.from_bytes(message.body[8:16], "big") / 1e6
            honest.arrive_ms.append((time.monotonic() - sent_s) * 1000)
        message.ack()


async def catch_up(honest: Honest) -> None:
    """Wait until all confirmed messages are consumed, at most CATCH_UP_S."""
    end_s = time.monotonic() + CATCH_UP_S
    while honest.confirmed - honest.consumed and time.monotonic() < end_s:  # noqa: ASYNC110 - a program
        await asyncio.sleep(0.5)


async def read_again(url: str, honest: Honest) -> None:
    """Read the topic in another group until all confirmed messages are read, at most CATCH_UP_S."""
    async with PushConsumer(
        url,
        group="honest-again",
        subscriptions={TOPIC: "*"},
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as consumer:
        try:
            async with asyncio.timeout(CATCH_UP_S):
                async for message in consumer:
                    honest.read_again.add(int.from_bytes(message.body[:8], "big"))
                    message.ack()
                    if honest.confirmed <= honest.read_again:
                        return
        except TimeoutError:
            return


async def watch(
    pair: TrocketPair, samples: list[tuple[float, ...]], honest: Honest, bar: Progress
) -> None:
    """Sample the anonymous memory of broker and name server in MB, the time, and the broker's CPU
    seconds, until cancelled."""
    task = bar.add_task("", total=None)
    while True:
        sample = tuple(anonymous_bytes(pid) / 1e6 for pid in pair.pids)
        samples.append((*sample, time.monotonic(), cpu_seconds(pair.pids[0])))
        bar.update(
            task,
            description=f"{len(honest.confirmed):,} confirmed, {len(honest.consumed):,} consumed, "
            f"{honest.failed_tries} failed tries, broker {sample[0]:.0f} MB",
        )
        await asyncio.sleep(SAMPLE_S)


def times_of(times_ms: list[float]) -> dict[str, float]:
    """p50, p99, p99.9 and the maximum of some times."""
    found = (round(each, 1) for each in percentiles(times_ms))
    return dict(zip(("p50", "p99", "p99.9", "max"), found, strict=True))


def by_attack(
    marks: list[dict[str, Any]], honest: Honest, samples: list[tuple[float, ...]]
) -> dict[str, dict[str, float]]:
    """The figures of each attack that was run in turn.

    Args:
      marks: the lines of `attacks.play_in_turn`.
    """
    figures = {}
    for begin, end in zip(marks[::2], marks[1::2], strict=False):
        first_s, last_s = begin["begin_s"], end["end_s"]
        pairs = zip(honest.sent_s, honest.send_ms, strict=True)
        times = [ms for at_s, ms in pairs if first_s <= at_s < last_s]
        during = [sample for sample in samples if first_s <= sample[2] < last_s + SAMPLE_S]
        if len(during) < 2:
            continue
        figures[begin["attack"]] = {
            "sends": len(times),
            **times_of(times),
            "broker_mb": round(max(sample[0] for sample in during), 1),
            "namesrv_mb": round(max(sample[1] for sample in during), 1),
            "cpu": round((during[-1][3] - during[0][3]) / (during[-1][2] - during[0][2]) * 100, 1),
        }
    return figures


def tenths(values: list[float]) -> list[float]:
    """The maximum in each tenth of the time, which shows growth."""
    size = max(1, len(values) // 10)
    return [round(max(values[at : at + size]), 1) for at in range(0, len(values), size)]


async def run(
    pair: TrocketPair,
    start_attacks: Callable[[Callable[[str], None]], LineProcess],
    minutes: float,
    rate: float,
    bar: Progress,
) -> dict[str, Any]:
    """Send and consume under attack, and return the figures.

    Args:
      start_attacks: called once the honest clients have sent and consumed a message, with a
        function that takes the lines of the attacks.
    Raises: PeerError: the broker or the attacks exited unexpectedly.
    """
    honest = Honest()
    samples: list[tuple[float, ...]] = []
    marks: list[dict[str, Any]] = []

    def on_line(line: str) -> None:
        if is_mark(line):
            marks.append(json.loads(line))

    url = pair.namesrv_address
    async with (
        Producer(url, group="honest") as producer,
        PushConsumer(
            url,
            group="honest",
            subscriptions={TOPIC: "*"},
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer,
    ):
        consuming = asyncio.create_task(consume(consumer, honest))
        watching = asyncio.create_task(watch(pair, samples, honest, bar))
        await warm_up(producer, honest)
        attacks = await asyncio.to_thread(start_attacks, on_line)
        until_s = time.monotonic() + minutes * 60
        sending = asyncio.create_task(send_all(producer, honest, rate, until_s))
        # The sampler ends early only if a process has exited.
        await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            sending.cancel()
            consumer.stop()
            watching.result()
        await sending
        line = await asyncio.to_thread(
            attacks.wait_line,
            is_end,
            timeout_s=ATTACKS_END_S,
        )
        await catch_up(honest)
        attacked = len(samples)
        await asyncio.sleep(min(SETTLE_S, minutes * 60))
        watching.cancel()
        consumer.stop()
        await consuming
    state = await asyncio.to_thread(stored_state, pair.broker_address, pair.folder / "store")
    used_s = cpu_seconds(pair.pids[0])
    await asyncio.to_thread(pair.kill_broker)
    await asyncio.to_thread(pair.start_broker)
    await read_again(url, honest)
    return {
        **of_honest(honest),
        **of_servers(samples, attacked),
        "state": {name: kind.number for name, kind in state.items()},
        "state_mb": round(size_of(state) / 1e6, 1),
        "broker_cpu_s": round(used_s, 1),
        "attacks": json.loads(line),
        "by_attack": by_attack(marks, honest, samples),
    }


def of_honest(honest: Honest) -> dict[str, Any]:
    """The figures of the honest clients."""
    return {
        "confirmed": len(honest.confirmed),
        "not_consumed": len(honest.confirmed - honest.consumed),
        "not_there_after_kill": len(honest.confirmed - honest.read_again),
        "given_up": honest.given_up,
        "failed_tries": honest.failed_tries,
        "last_failure": honest.last_failure,
        "send_ms": times_of(honest.send_ms),
        "arrive_ms": times_of(honest.arrive_ms),
    }


def of_servers(samples: list[tuple[float, ...]], attacked: int) -> dict[str, Any]:
    """The memory of broker and name server.

    Args:
      attacked: the samples that were taken during the attacks.
    """
    return {
        "broker_mb_max": round(max(sample[0] for sample in samples), 1),
        "namesrv_mb_max": round(max(sample[1] for sample in samples), 1),
        "broker_mb_by_tenth": tenths([sample[0] for sample in samples[:attacked]]),
        "broker_mb_end": round(samples[-1][0], 1),
    }


def violations(figures: dict[str, Any], budget_mb: int, own_mb: int) -> list[str]:
    """Add the memory limits to the figures, and return the names of figures that are wrong."""
    kept_mb = own_mb * MIB / 1e6 + figures["state_mb"]
    allowed_mb = {"broker_mb_max": kept_mb + budget_mb * MIB / 1e6, "broker_mb_end": kept_mb}
    figures["allowed_mb"] = {name: round(mb, 1) for name, mb in allowed_mb.items()}
    lost = [name for name in ("given_up", "not_consumed", "not_there_after_kill") if figures[name]]
    return lost + [name for name, mb in allowed_mb.items() if figures[name] > mb]


def report(figures: dict[str, Any]) -> Table:
    """The figures as a table for people."""
    rows = []
    for name, value in figures.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {item}" for key, item in value.items())
        rows.append([name, str(value)])
    return table(("figure", "value"), rows)


def attack_report(figures: dict[str, Any]) -> Table:
    """The figures of each attack as a table for people."""
    rows = [[name, *map(str, each.values())] for name, each in figures.items()]
    head = ("attack", "sends", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "broker MB")
    return table((*head, "name server MB", "broker CPU %"), rows)


def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="Attack for this time.")] = 60.0,
    rate: Annotated[float, typer.Option(help="Send this often per second.", min=1)] = 50.0,
    budget_mb: Annotated[int, typer.Option(help="Set remotingBytesMax in MiB.", min=64)] = 256,
    own_mb: Annotated[int, typer.Option(help="Allow the broker this base memory in MiB.")] = 120,
    seed: Annotated[int, typer.Option(help="Seed the attacks.")] = 0,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this attack (repeatable).")
    ] = None,
    each: Annotated[
        float, typer.Option(help="Attack one after the other, this many seconds each.", min=0)
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Keep logs and store here.")] = None,
) -> None:
    """Attack a broker for a time, and print the figures of its honest clients."""
    with (
        tempfile.TemporaryDirectory() as name,
        Progress(console=Console(stderr=True)) as bar,
        socket.create_server(("127.0.0.1", 0)) as hung,
    ):
        folder = keep or Path(name)
        ha_port = free_port()
        pair = TrocketPair(
            folder / "pair",
            broker_keys={
                "haListenPort": ha_port,
                "haListenAddress": "127.0.0.1",
                "enablePropertyFilter": "true",
                "remotingBytesMax": budget_mb * MIB,
                "limitExemptAddresses": "127.0.0.1",
            },
        )
        pair.start_namesrv()
        conf = folder / "pair" / "broker.conf"
        both = f"{pair.namesrv_address};127.0.0.1:{hung.getsockname()[1]}"
        conf.write_text(conf.read_text().replace(pair.namesrv_address, both))
        try:
            pair.start_broker()
            names = only or [attack.name for attack in ATTACKS]
            seconds = each or minutes * 60
            options = ["--ha", f"127.0.0.1:{ha_port}", "--victim", TOPIC, "--seed", str(seed)]
            options += ["--seconds", str(seconds), *(["--in-turn"] if each else [])]
            options += [text for name in names for text in ("--only", name)]
            if each:  # one more is no attack at all
                minutes = (each + PAUSE_S) * (len(names) + 1) / 60

            def start(on_line: Callable[[str], None]) -> LineProcess:
                return start_attacks(pair, folder, on_line, *options)

            figures: dict[str, Any] = {"minutes": minutes, "rate_per_s": rate}
            figures |= asyncio.run(run(pair, start, minutes, rate, bar))
        except PeerError as error:
            sys.exit(f"hostile: {error}")
        finally:
            pair.close()
    wrong = violations(figures, budget_mb, own_mb)
    if as_json:
        print(json.dumps(figures, indent=2))
    else:
        attacked: dict[str, Any] = figures.pop("by_attack")
        Console().print(report(figures))
        if attacked:
            Console().print(attack_report(attacked))
    if wrong:
        sys.exit(f"hostile: wrong: {', '.join(wrong)}")


if __name__ == "__main__":
    typer.run(main)
