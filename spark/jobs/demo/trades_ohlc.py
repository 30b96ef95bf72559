"""Trades with known bars, some of them late, early or unreadable."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any, Final

from trocket.blocking import Admin, Client, Message, Producer
from trocket.common.clock import SystemClock
from trocket.common.terminal import grouped, show
from trocket.spark.jobs.demo import Stage

TOPICS: Final = ("TopicTrade", "TopicBar", "TopicTradeLate")
SYMBOLS: Final = ("ACME", "BOLT", "CRUX", "DART", "EMBER", "FLINT", "GROVE", "HELIX")
WINDOW_MS: Final = 1000
COLUMNS: Final = ("symbol", "name", "UTC", "open", "high", "low", "close", "VWAP", "volume")
SHOWN: Final = 24
CHUNK: Final = 500
"""Trades with times around one moment; small enough that all are stored before they are late."""


def fill(name_server: str, count: int, seed: int) -> dict[str, Any]:
    """Send `count` messages; returns the valid trades, and the numbers of the others by kind.

    A valid trade is at most 5 s old when it is generated, and no two have the same time, so that
    their order depends only on the trades themselves.
    """
    rng = random.Random(seed)
    clock = SystemClock()
    answers: dict[str, Any] = {"trades": [], "late": 0, "early": 0, "unreadable": 0}
    prices = {symbol: rng.randrange(40, 400) for symbol in SYMBOLS}
    used: set[int] = set()
    with Client(name_server) as client, Admin(client) as admin, Producer(client) as producer:
        for topic in TOPICS:
            admin.create_topic(topic, 4)
        for number in range(count):
            if number % CHUNK == 0:
                now_ms = clock.wall_ms()
            symbol = rng.choice(SYMBOLS)
            prices[symbol] = max(prices[symbol] + rng.choice((-1, 0, 0, 1)), 4)
            trade: dict[str, Any] = {
                "symbol": symbol,
                "price": prices[symbol] / 4,
                "quantity": rng.randrange(1, 500),
                "time": now_ms - rng.randrange(5000),
            }
            kind = rng.choices(("", "late", "early", "unreadable"), (90, 5, 2, 3))[0]
            if kind:
                answers[kind] += 1
                trade["time"] += {"late": -240_000, "early": 240_000}.get(kind, 0)
            else:
                while trade["time"] in used:
                    trade["time"] -= 1
                used.add(trade["time"])
                answers["trades"].append(trade)
            body = "no trade" if kind == "unreadable" else json.dumps(trade)
            producer.send_soon(Message(TOPICS[0], body))
    return answers


def bars_of(trades: list[dict[str, Any]], window_ms: int) -> dict[tuple[str, int], dict[str, Any]]:
    """Bars by (symbol, start), computed in plain Python."""
    groups = defaultdict(list)
    for trade in trades:
        groups[trade["symbol"], trade["time"] - trade["time"] % window_ms].append(trade)
    found = {}
    for key, group in groups.items():
        group.sort(key=lambda trade: trade["time"])
        prices = [trade["price"] for trade in group]
        volume = sum(trade["quantity"] for trade in group)
        turnover = sum(trade["price"] * trade["quantity"] for trade in group)
        found[key] = {
            "open": prices[0], "high": max(prices), "low": min(prices), "close": prices[-1],
            "volume": volume, "vwap": turnover / volume, "trades": len(group),
        }  # fmt: skip
    return found


def close_windows(stage: Stage) -> None:
    """Advance the broker's clock by minutes, and send a trade that closes all earlier windows."""
    stage.broker.advance(minutes=3)
    last = {"symbol": "LAST", "price": 1.0, "quantity": 1, "time": stage.broker.now_ms}
    with Producer(stage.name_server) as producer:
        producer.send(Message(TOPICS[0], json.dumps(last)))


def arguments(stage: Stage, answers: dict[str, Any]) -> list[str]:
    """The job's command line: a stream with bars of a second, and a table of most symbols."""
    close_windows(stage)
    table = stage.folder / "instruments.csv"
    lines = [f"{symbol},{symbol.title()} Inc.,EUR" for symbol in SYMBOLS[:-1]]
    table.write_text("\n".join(["symbol,name,currency", *lines]) + "\n")
    return [
        *("--name-server", stage.name_server, "--window", "1 second", "--available-now"),
        *("--checkpoint", str(stage.folder / "checkpoint"), "--instruments", str(table)),
        *("--late-files", str(stage.results / "late")),
    ]


def check(stage: Stage, answers: dict[str, Any]) -> bool:
    """Print the bars, and compare them with those computed in plain Python."""
    stored = [json.loads(message.body) for message in stage.broker.messages("TopicBar")]
    stored.sort(key=lambda bar: (bar["symbol"], bar["start"]))
    kept = "".join(json.dumps(bar) + "\n" for bar in stored)
    (stage.results / "bars.jsonl").write_text(kept, encoding="utf-8")
    show(
        COLUMNS,
        [_row(bar) for bar in stored[:SHOWN]],
        title=f"{TOPICS[0]} as {TOPICS[1]}",
        cell=grouped,
    )
    if len(stored) > SHOWN:
        print(f"… and {len(stored) - SHOWN} more bars")
    expected = bars_of(answers["trades"], WINDOW_MS)
    found = {(bar["symbol"], bar["start"]): bar for bar in stored}
    is_right = found.keys() == expected.keys() and all(
        abs(found[key][name] - value) < 1e-6
        for key, bar in expected.items()
        for name, value in bar.items()
    )
    late = len(stage.broker.messages("TopicTradeLate"))
    others = sum(answers[kind] for kind in ("late", "early", "unreadable"))
    is_right = is_right and late == others and len(stored) == len(found)
    word = "the same as" if is_right else "NOT the same as"
    print(f"{len(stored)} bars, {late} messages in none: {word} in plain Python")
    return is_right


def _row(bar: dict[str, Any]) -> list[str]:
    start = datetime.fromtimestamp(bar["start"] / 1000, UTC)
    prices = [f"{bar[name]:.2f}" for name in ("open", "high", "low", "close", "vwap")]
    name = (bar["instrument"] or {}).get("name", "(unknown)")
    return [bar["symbol"], name, f"{start:%H:%M:%S}", *prices, f"{bar['volume']:,}"]
