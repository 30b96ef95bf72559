"""Hostile clients: raw sockets that break the protocol, flood, hoard or lie, round after round.

    python -m tests.attacks.hostile.attacks --broker 127.0.0.1:10911 --namesrv 127.0.0.1:9876 \
        --ha 127.0.0.1:10912 --seconds 60

`python -m tests.attacks.hostile` starts this program next to its broker. Each attack is a bounded
round that is repeated after a pause. The frames are not built by trocket's codec, so that they can
be invalid.
Attacks use separate topics and groups, and omit requests that every client may send without access
control (delete a topic, reset a group's offsets).

Only loopback addresses can be attacked.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final

import trio
import typer

from trocket.interop.process import LineProcess
from trocket.interop.trocket_peer import TrocketPair

from .attack_kit import (
    DESTRUCTIVE_CODES,
    HOSTILE_NUMBERS,
    MIB,
    SYSTEM_TOPICS,
    TOPICS_MAX,
    Attack,
    Target,
    connect,
    deliver,
    frame,
    hoard,
    pop_fields,
    pull_fields,
    raw_frame,
    send_fields,
)
from .floods import FLOODS

ROOT: Final = Path(__file__).resolve().parents[3]
PAUSE_S: Final = 3.0
"""Seconds between two attacks in turn: the broker answers and closes what the last one left."""
ROUND_S_MAX: Final = 60.0
"""Seconds after which a round is cancelled: the broker may hold a request without limit."""


async def half_frames(target: Target) -> None:
    """30 frames of 16 MiB, of which the last byte never comes."""

    async def each(stream: trio.SocketStream) -> None:
        await stream.send_all(struct.pack(">ii", 16 * MIB - 1, 20))
        for _ in range(15):
            await stream.send_all(bytes(MIB))
        await trio.sleep(10)

    await hoard(target.broker, 30, each)


async def slow_frames(target: Target) -> None:
    """300 peers that send a byte in each second."""
    data = frame(310, send_fields("Hostile"), bytes(200))

    async def each(stream: trio.SocketStream) -> None:
        for at in range(20):
            await stream.send_all(data[at : at + 1])
            await trio.sleep(1)

    await hoard(target.broker, 300, each)


async def held_bodies(target: Target) -> None:
    """Pulls that are held, with bodies of 15 MiB."""
    async with await connect(target.broker) as stream:
        for at in range(20):
            fields = pull_fields("Hostile", 0, wait_s=30, offset=0, subscription="nothing")
            await stream.send_all(frame(11, fields, bytes(15 * MIB), opaque=at))
        await trio.sleep(10)


async def held_pulls(target: Target) -> None:
    """20,000 held pulls of the honest topic, with a tag that no message has."""
    ends: dict[int, int] = {}
    for queue_id in range(target.queues):
        fields = {"topic": target.victim, "queueId": str(queue_id)}
        answer = await deliver(target.broker, frame(30, fields), read_s=1)
        size = int.from_bytes(answer[4:8], "big") & 0xFFFFFF
        ends[queue_id] = int(json.loads(answer[8 : 8 + size])["extFields"]["offset"])

    async def each(stream: trio.SocketStream) -> None:
        for start in range(0, 2_000, 100):
            pulls = b"".join(
                frame(11, pull_fields(
                    target.victim, at % target.queues, wait_s=30,
                    offset=ends[at % target.queues], subscription="nothing",
                ), opaque=at)
                for at in range(start, start + 100)
            )  # fmt: skip
            await stream.send_all(pulls)
        await trio.sleep(20)

    await hoard(target.broker, 10, each)


async def waiting_pops(target: Target) -> None:
    """20,000 waiting pops of 200 groups on the honest topic, with a tag that no message has."""

    async def each(stream: trio.SocketStream) -> None:
        for start in range(0, 2_000, 100):
            pops = b"".join(
                frame(200050, pop_fields(target.victim, f"hostile-{at % 200}"), opaque=at)
                for at in range(start, start + 100)
            )
            await stream.send_all(pops)
        await trio.sleep(20)

    await hoard(target.broker, 10, each)


async def unread_answers(target: Target) -> None:
    """10 connections ask for 2,000 pulls of the honest topic's beginning each, and read nothing."""
    pulls = b"".join(
        frame(11, pull_fields(target.victim, at % target.queues, wait_s=0, offset=0), opaque=at)
        for at in range(2_000)
    )

    async def each(stream: trio.SocketStream) -> None:
        with trio.move_on_after(15):
            await stream.send_all(pulls)
            await trio.sleep(15)

    await hoard(target.broker, 10, each)


async def loose_json(target: Target) -> None:
    """A heartbeat of 3.7 MiB and headers of 200 KiB that only fastjson reads."""
    consumer = "{groupName:'g%d',consumeType:'CONSUME_PASSIVELY',messageModel:'CLUSTERING'},"
    body = "{clientID:'hostile',consumerDataSet:[" + "".join(consumer % at for at in range(50_000))
    await deliver(target.broker, frame(34, {}, f"{body}]}}".encode()), read_s=15)
    fields = ",".join(f"k{at}:'{'v' * 900}'" for at in range(200))
    header = f"{{code:105,flag:0,opaque:1,version:500,extFields:{{{fields}}}}}".encode()
    for address in (target.broker, target.namesrv):
        await deliver(address, raw_frame(header))
    await deliver(target.broker, raw_frame(b'{"a":' * 30_000))


async def wide_headers(target: Target) -> None:
    """200 requests, each with other field names; one with 19,000 fields."""
    for start in range(0, 200, 20):
        frames = [
            frame(34, {f"{target.random.random()}{at}": "x" * 900 for at in range(200)})
            for _ in range(start, start + 20)
        ]
        await deliver(target.broker, b"".join(frames))
    await deliver(target.broker, frame(34, {str(at): "" for at in range(19_000)}))


async def wide_subscriptions(target: Target) -> None:
    """Pulls by 20,000 tags, other ones each time."""
    for _ in range(10):
        tags = "||".join(str(target.random.random())[2:10] for _ in range(20_000))
        fields = pull_fields(target.victim, 0, wait_s=0, subscription=tags)
        await deliver(target.broker, frame(11, fields))


async def deep_expressions(target: Target) -> None:
    """SQL92 of 32 KB: a sign after the other, brackets, alternatives."""
    expressions = (
        "a > " + "-" * 32_000 + "1",
        "(" * 16_000 + "a > 1" + ")" * 16_000,
        " or ".join(f"a{at} = {at}" for at in range(2_000)),
        "a in (" + ",".join(f"'{at}'" for at in range(4_000)) + ")",
    )
    for expression in expressions:
        fields = pull_fields(target.victim, 0, wait_s=0, offset=0, subscription=expression)
        await deliver(target.broker, frame(11, fields | {"expressionType": "SQL92"}), read_s=5)


async def new_topics(target: Target) -> None:
    """New topics by 17, 18 and first sends, with queue counts of any size."""
    if target.topics >= TOPICS_MAX:
        return
    frames = []
    for at in range(50):
        name = f"Hostile{target.topics + at}"
        nums = target.random.choice(("4", "8", *HOSTILE_NUMBERS))
        frames.append(frame(310, send_fields(name, nums=nums), b"x", opaque=at))
        frames.append(frame(17, {
            "topic": f"{name}a", "defaultTopic": "TBW102", "readQueueNums": nums,
            "writeQueueNums": nums, "perm": target.random.choice(("6", "7", *HOSTILE_NUMBERS)),
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }, opaque=at))  # fmt: skip
    topics = [
        {"topicName": f"Hostile{target.topics + at}b", "readQueueNums": 4, "writeQueueNums": 4,
         "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
        for at in range(200)
    ]  # fmt: skip
    frames.append(frame(18, {}, json.dumps({"topicConfigList": topics}).encode()))
    target.topics += 300
    await deliver(target.broker, b"".join(frames), read_s=5)


async def hostile_groups(target: Target) -> None:
    """Groups with queue counts of any size, and heartbeats for new ones."""
    frames = []
    for at in range(20):
        group = f"hostile{target.random.randrange(500)}"
        body = {"groupName": group, "retryQueueNums": target.random.choice((1, -1, 2**31 - 1)),
                "retryMaxTimes": target.random.choice((16, -5, 2**40)), "brokerId": 0}  # fmt: skip
        frames.append(frame(200, {}, json.dumps(body).encode(), opaque=at))
        beat = {"clientID": f"h{at}", "producerDataSet": [], "consumerDataSet": [
            {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
             "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
             "subscriptionDataSet": [{"topic": "Hostile", "subString": "*"}]}]}  # fmt: skip
        frames.append(frame(34, {}, json.dumps(beat).encode(), opaque=at))
    await deliver(target.broker, b"".join(frames))


async def any_request(target: Target) -> None:
    """200 requests of any code, with any fields."""
    choice = target.random.choice
    names = ("topic", "queueId", "consumerGroup", "group", "offset", "timestamp", "maxNum", "key",
             "a", "b", "d", "e", "queueOffset", "commitOffset", "brokerName", "producerGroup",
             "tranStateTableOffset", "commitLogOffset", "commitOrRollback", "clientId")  # fmt: skip
    frames = []
    for at in range(200):
        code = target.random.randrange(1100)
        if code in DESTRUCTIVE_CODES:
            continue
        fields = {
            name: choice((*HOSTILE_NUMBERS, "1", "Hostile", "../../x", "a" * 300, "%RETRY%x"))
            for name in target.random.sample(names, 8)
        }
        body = choice((b"", b"{}", b"[]", target.random.randbytes(100)))
        frames.append(frame(code, fields, body, opaque=at, flag=choice((0, 0, 2))))
    for address in (target.broker, target.namesrv):
        await deliver(address, b"".join(frames))


async def internal_records(target: Target) -> None:
    """Sends that pretend to be the broker's own records: system topics, internal properties."""
    choice = target.random.choice
    frames = []
    for at in range(200):
        pairs = {
            "REAL_TOPIC": choice((target.victim, *SYSTEM_TOPICS)), "REAL_QID": "0",
            "TIMER_OUT_MS": choice(HOSTILE_NUMBERS), "TIMER_ENQUEUE_MS": "1",
            "TRAN_MSG": choice(("true", "false")), "PGROUP": "hostile", "DELAY": "3",
            "TIMER_DEL_UNIQKEY": "x", "UNIQ_KEY": f"{at:032X}",
        }  # fmt: skip
        chosen = target.random.sample(sorted(pairs), 4)
        properties = "".join(f"{name}\x01{pairs[name]}\x02" for name in chosen)
        fields = send_fields(choice(("Hostile", *SYSTEM_TOPICS)), properties)
        frames.append(frame(choice((310, 320)), fields, str(at).encode(), opaque=at))
    await deliver(target.broker, b"".join(frames))


async def open_transactions(target: Target) -> None:
    """500 half messages without an end, and 500 END_TRANSACTION requests for no half message."""
    frames = []
    for at in range(500):
        key = f"{target.random.getrandbits(128):032X}"
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01hostile\x02UNIQ_KEY\x01{key}\x02"
        frames.append(frame(310, send_fields("Hostile", properties), b"half", opaque=at))
        frames.append(frame(37, {
            "producerGroup": "hostile", "tranStateTableOffset": str(at), "commitOrRollback": "8",
            "commitLogOffset": str(target.random.randrange(1 << 24)), "msgId": key,
        }, opaque=at))  # fmt: skip
    await deliver(target.broker, b"".join(frames))


async def many_timers(target: Target) -> None:
    """300 messages with delays of any kind."""
    frames = []
    for at in range(300):
        name = target.random.choice(
            ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "DELAY")
        )
        value = target.random.choice((*HOSTILE_NUMBERS, "1", "3", "600"))
        frames.append(frame(310, send_fields("Hostile", f"{name}\x01{value}\x02"), b"t", opaque=at))
    await deliver(target.broker, b"".join(frames))


async def wrong_batches(target: Target) -> None:
    """Batches whose lengths lie."""
    frames = []
    for at in range(100):
        body = bytearray(target.random.randbytes(200))
        body[0:4] = struct.pack(">i", target.random.choice((-1, 0, 2**31 - 1, 200, 100)))
        frames.append(frame(320, send_fields("Hostile"), bytes(body), opaque=at))
    await deliver(target.broker, b"".join(frames))


async def large_questions(target: Target) -> None:
    """Look-ups and table requests with the largest answers, and locks of 20,000 queues."""
    queues = [{"topic": "Hostile", "brokerName": "b", "queueId": at} for at in range(20_000)]
    lock = {"consumerGroup": "hostile", "clientId": "h", "mqSet": queues}
    frames = [
        frame(12, {"topic": target.victim, "key": "k", "maxNum": "2147483647",
                   "beginTimestamp": "0", "endTimestamp": "9223372036854775807"}),
        frame(21, {}), frame(43, {}), frame(45, {}), frame(201, {}),
        frame(41, {}, json.dumps(lock).encode()),
    ]  # fmt: skip
    for data in frames:
        await deliver(target.broker, data)
    await deliver(target.namesrv, frame(206, {}) + frame(106, {}))


async def churn(target: Target) -> None:
    """1,000 connections that come and go."""
    for _ in range(1_000):
        async with await connect(target.broker):
            pass


async def idle(target: Target) -> None:
    """1,000 connections that say nothing for 30 s."""

    async def each(stream: trio.SocketStream) -> None:
        await trio.sleep(30)

    await hoard(target.broker, 1_000, each)


async def garbage(target: Target) -> None:
    """Random bytes on each port."""
    for address in (target.broker, target.namesrv, target.ha):
        for _ in range(20):
            await deliver(address, target.random.randbytes(5_000), read_s=0.2)


async def false_slaves(target: Target) -> None:
    """Slaves that acknowledge offsets they do not have, and slaves that send nothing."""
    for offset in (2**63 - 1, -1, 0, 10**15):
        await deliver(target.ha, struct.pack(">q", offset) * 2)

    async def each(stream: trio.SocketStream) -> None:
        await trio.sleep(5)

    await hoard(target.ha, 50, each)


ATTACKS: Final = (
    Attack("half frames", half_frames, 5),
    Attack("slow frames", slow_frames, 5),
    Attack("held bodies", held_bodies, 10),
    Attack("held pulls", held_pulls, 5),
    Attack("waiting pops", waiting_pops, 5),
    Attack("unread answers", unread_answers, 5),
    Attack("loose JSON", loose_json, 3),
    Attack("wide headers", wide_headers, 5),
    Attack("wide subscriptions", wide_subscriptions, 5),
    Attack("deep expressions", deep_expressions, 3),
    Attack("new topics", new_topics, 10),
    Attack("hostile groups", hostile_groups, 3),
    Attack("any request", any_request, 1),
    Attack("internal records", internal_records, 3),
    Attack("open transactions", open_transactions, 5),
    Attack("many timers", many_timers, 5),
    Attack("wrong batches", wrong_batches, 3),
    Attack("large questions", large_questions, 5),
    Attack("churn", churn, 10),
    Attack("idle", idle, 5),
    Attack("garbage", garbage, 3),
    Attack("false slaves", false_slaves, 5),
    *FLOODS,
)


async def nothing(target: Target) -> None:
    """No attack, for comparison."""
    await trio.sleep_forever()


NOTHING: Final = Attack("nothing", nothing, 0)


async def repeat(attack: Attack, target: Target) -> None:
    """Repeat an attack's rounds for ever; a connection closed by the server ends a round."""
    while True:
        with trio.move_on_after(ROUND_S_MAX) as scope:
            try:
                await attack.run(target)
            except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, ValueError):
                target.failures[attack.name] += 1
        target.failures[attack.name] += scope.cancelled_caught
        target.rounds[attack.name] += 1
        await trio.sleep(attack.pause_s)


async def play(target: Target, attacks: tuple[Attack, ...], seconds: float) -> None:
    """Run attacks concurrently for `seconds`."""
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for attack in attacks:
                nursery.start_soon(partial(repeat, attack, target))


async def play_in_turn(target: Target, attacks: tuple[Attack, ...], seconds: float) -> None:
    """Run attacks one after the other, each for `seconds`; print when each begins and ends."""
    for attack in (NOTHING, *attacks):
        print(json.dumps({"attack": attack.name, "begin_s": time.monotonic()}), flush=True)
        await play(target, (attack,), seconds)
        print(json.dumps({"attack": attack.name, "end_s": time.monotonic()}), flush=True)
        await trio.sleep(PAUSE_S)


def start_attacks(
    pair: TrocketPair, folder: Path, on_line: Callable[[str], None], *options: str
) -> LineProcess:
    """Start this program on a running pair.

    Args:
      folder: for its logs.
      on_line: takes the lines that it prints; see `is_mark`.
      options: further ones of `main`.
    """
    command = [
        sys.executable, "-m", "tests.attacks.hostile.attacks",
        "--broker", pair.broker_address, "--namesrv", pair.namesrv_address, *options,
    ]  # fmt: skip
    return LineProcess(
        command,
        folder=folder,
        name="attacks",
        environment={"PYTHONPATH": str(ROOT)},
        on_line=on_line,
    )


def is_mark(line: str) -> bool:
    """Whether a line that `main` printed says that an attack begins or ends."""
    return line.startswith('{"attack": ')


def is_end(line: str) -> bool:
    """Whether it is the last line that `main` printed, with the rounds of all attacks."""
    return line.startswith("{") and not is_mark(line)


def loopback(address: str) -> tuple[str, int]:
    """The (host, port) of `IP:PORT`. Raises: typer.BadParameter: it is not a loopback address."""
    host, _, port = address.rpartition(":")
    try:
        if not ip_address(host).is_loopback:
            raise typer.BadParameter(f"{host} is not a loopback address")
        return host, int(port)
    except ValueError as error:
        raise typer.BadParameter(f"{address!r} is not IP:PORT: {error}") from error


def main(
    broker: Annotated[str, typer.Option(help="Attack this broker: IP:PORT on loopback.")],
    namesrv: Annotated[str, typer.Option(help="Attack this name server: IP:PORT on loopback.")],
    ha: Annotated[str, typer.Option(help="Attack this HA port: IP:PORT on loopback.")],
    victim: Annotated[str, typer.Option(help="Set the honest clients' topic.")] = "Honest",
    queues: Annotated[int, typer.Option(help="Set that topic's number of queues.")] = 4,
    seconds: Annotated[float, typer.Option(min=1, help="Attack for this time.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed the random numbers.")] = 0,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this attack (repeatable).")
    ] = None,
    in_turn: Annotated[bool, typer.Option(help="Attack one after the other.")] = False,
) -> None:
    """Attack servers on this machine, and print the rounds and failures of each attack as JSON."""
    attacks = tuple(a for a in ATTACKS if not only or a.name in only)
    if not attacks:
        raise typer.BadParameter(f"--only takes {', '.join(a.name for a in ATTACKS)}")
    target = Target(
        loopback(broker), loopback(namesrv), loopback(ha), victim, queues, random.Random(seed)
    )
    trio.run(play_in_turn if in_turn else play, target, attacks, seconds)
    print(json.dumps({a.name: [target.rounds[a.name], target.failures[a.name]] for a in attacks}))
    sys.stdout.flush()


if __name__ == "__main__":
    typer.run(main)
