"""Runtime statistics of a broker as numbers, read from the strings of answer 28.

Brokers of different versions have different keys: what a broker does not tell is None here, and
every string that it sent is in `texts`. Pure.

Source: prepareRuntimeInfo of AdminBrokerProcessor.java and StoreStatsService.java of 4.9.7 and
5.5.0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from ...remoting.mq_version import version_name


class Rates(msgspec.Struct, frozen=True, rename="camel"):
    """A number per second, over the last 10, 60 and 600 seconds."""

    last_10_s: float
    last_60_s: float
    last_600_s: float


class BrokerStats(msgspec.Struct, frozen=True, rename="camel"):
    """How a broker runs. None: it did not say.

    Attributes:
      broker_name, broker_id, address: who it is; id 0 is the master. A broker that was asked for by
        its `host:port` has that as its name, and -1.
      version: such as "V5_5_0"; "": it did not say.
      is_active: it delivers delayed messages and checks transactions, as a master does (5.x).
      boot_ms: when it started, ms since 1970.
      put: messages stored per second.
      got: messages read per second.
      get_found, get_missed: reads per second that found messages, and that found none.
      put_total: messages stored since it started.
      put_today, put_yesterday: messages stored since midnight, and on the day before.
      got_today, got_yesterday: messages read in these times.
      put_size_total: bytes of the messages stored since it started.
      put_max_ms: the longest time that storing a message took.
      put_99_ms, put_999_ms: the time in which 99 % and 99.9 % of the messages were stored (5.x).
      commit_log_disk_ratio, consume_queue_disk_ratio: the used part of the disk, 0 to 1; the
        fullest one, if the log is on several.
      commit_log_begin, commit_log_end: the log's range, in bytes.
      dispatch_behind: bytes of the log that are not in the queues yet.
      earliest_ms: when the oldest message was stored, ms since 1970.
      send_queue_size, send_queue_wait_ms: requests to store messages that wait, and for how long.
      texts: everything that the broker sent, by RocketMQ's names.
    """

    broker_name: str
    broker_id: int
    address: str
    version: str
    is_active: bool | None
    boot_ms: int | None
    put: Rates | None
    got: Rates | None
    get_found: Rates | None
    get_missed: Rates | None
    put_total: int | None
    put_today: int | None
    put_yesterday: int | None
    got_today: int | None
    got_yesterday: int | None
    put_size_total: int | None
    put_max_ms: int | None
    put_99_ms: float | None
    put_999_ms: float | None
    commit_log_disk_ratio: float | None
    consume_queue_disk_ratio: float | None
    commit_log_begin: int | None
    commit_log_end: int | None
    dispatch_behind: int | None
    earliest_ms: int | None
    send_queue_size: int | None
    send_queue_wait_ms: int | None
    texts: dict[str, str]


def read_broker_stats(
    texts: Mapping[str, str], *, broker_name: str, broker_id: int, address: str
) -> BrokerStats:
    """The statistics in a table of strings; one that is not of its form counts as missing."""

    def integer(key: str) -> int | None:
        return _integer(texts.get(key))

    def since(then: str, now: str) -> int | None:
        first, last = integer(then), integer(now)
        return None if first is None or last is None else last - first

    return BrokerStats(
        broker_name,
        broker_id,
        address,
        _version(texts),
        {"true": True, "false": False}.get(texts.get("brokerActive", "")),
        integer("bootTimestamp"),
        put=_rates(texts.get("putTps")),
        # 4.9 spells it otherwise than 5.x.
        got=_rates(texts.get("getTransferredTps") or texts.get("getTransferedTps")),
        get_found=_rates(texts.get("getFoundTps")),
        get_missed=_rates(texts.get("getMissTps")),
        put_total=integer("putMessageTimesTotal"),
        put_today=since("msgPutTotalTodayMorning", "msgPutTotalTodayNow"),
        put_yesterday=since("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning"),
        got_today=since("msgGetTotalTodayMorning", "msgGetTotalTodayNow"),
        got_yesterday=since("msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning"),
        put_size_total=integer("putMessageSizeTotal"),
        put_max_ms=integer("putMessageEntireTimeMax"),
        put_99_ms=_number(texts.get("putLatency99")),
        put_999_ms=_number(texts.get("putLatency999")),
        commit_log_disk_ratio=_fullest(texts, "commitLogDiskRatio"),
        consume_queue_disk_ratio=_fullest(texts, "consumeQueueDiskRatio"),
        commit_log_begin=_at_least(0, integer("commitLogMinOffset")),
        commit_log_end=integer("commitLogMaxOffset"),
        dispatch_behind=integer("dispatchBehindBytes"),
        earliest_ms=_at_least(0, integer("earliestMessageTimeStamp")),
        send_queue_size=integer("sendThreadPoolQueueSize"),
        send_queue_wait_ms=integer("sendThreadPoolQueueHeadWaitTimeMills"),
        texts=dict(texts),
    )


def _integer(text: str | None) -> int | None:
    text = (text or "").strip()
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else None


def _at_least(least: int, value: int | None) -> int | None:
    return None if value is None or value < least else value


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _rates(text: str | None) -> Rates | None:
    numbers = [_number(each) for each in (text or "").split()]
    found = [each for each in numbers if each is not None]
    # Apache's broker has a single 0 before it has samples for all three.
    if not found or len(found) != len(numbers):
        return None
    return Rates(*(found + [found[-1]] * 2)[:3])


def _version(texts: Mapping[str, str]) -> str:
    name = texts.get("brokerVersionDesc", "")
    if name:
        return name
    number = _integer(texts.get("brokerVersion"))
    return "" if number is None else version_name(number)


def _fullest(texts: Mapping[str, str], key: str) -> float | None:
    """The largest ratio of all folders: a log on several disks has a key for each of them."""
    ratios = [
        ratio
        for name, text in texts.items()
        if name == key or name.startswith(f"{key}_")
        if (ratio := _number(text)) is not None and ratio >= 0
    ]
    return max(ratios, default=None)
