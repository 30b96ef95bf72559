"""broker/stats/pop_counts.py, and the counters of pops in the statistics."""

from __future__ import annotations

import pytest

from trocket.broker.stats import pop_counts
from trocket.broker.stats.broker_stats_manager import BrokerStatsManager, StatsName
from trocket.broker.stats.pop_counts import PopCounts, RecordKind
from trocket.common.clock import ManualClock
from trocket.common.steps import at_once
from trocket.store.status import PutMessageStatus

OK = PutMessageStatus.PUT_OK


def counted() -> PopCounts:
    counts = PopCounts()
    for group, topic in (("g", "T"), ("g", "U"), ("h", "T")):
        counts.put(group, topic, RecordKind.CK, OK)
        counts.put(group, topic, RecordKind.CK, OK)
        counts.got(group, topic, RecordKind.ACK, 3)
        counts.retried(group, topic, OK)
    return counts


def test_records_and_messages_are_counted() -> None:
    counts = counted()
    assert counts.puts["g", "T", RecordKind.CK, OK] == 2
    assert counts.gets["g", "T", 3, RecordKind.ACK] == 1
    assert counts.retries["h", "T", OK] == 1


def test_counters_end_with_their_topic_and_group() -> None:
    counts = counted()
    counts.topic_deleted("T")
    assert {key.topic for table in (counts.puts, counts.gets, counts.retries) for key in table} == {
        "U"
    }
    counts.group_deleted("g")
    assert not counts.puts
    assert not counts.gets
    assert not counts.retries


def test_the_number_of_counters_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_counts, "ENTRIES_MAX", 2)
    counts = counted()
    assert [len(table) for table in (counts.puts, counts.gets, counts.retries)] == [2, 2, 2]
    counts.put("g", "T", RecordKind.CK, OK)
    assert counts.puts["g", "T", RecordKind.CK, OK] == 3


def test_the_statistics_count_check_points_and_acknowledgements() -> None:
    stats = BrokerStatsManager("C", {}, counts_puts=True, clock=ManualClock())
    stats.pop.pops = {"T@g": 2, "%RETRY%g_T@g": 1, "%RETRY%g+T@g": 1}
    stats.pop.acks = {"T@g": 3, "T@h": 1, "%RETRY%g_T@g": 1}
    at_once(stats.collect())
    assert values(stats, StatsName.GROUP_CK_NUMS) == {"T@g": 4}
    assert values(stats, StatsName.GROUP_ACK_NUMS) == {"T@g": 3, "T@h": 1, "%RETRY%g_T@g": 1}
    assert values(stats, StatsName.BROKER_CK_NUMS) == {"C": 4}
    assert values(stats, StatsName.BROKER_ACK_NUMS) == {"C": 5}
    at_once(stats.collect())
    assert values(stats, StatsName.BROKER_ACK_NUMS) == {"C": 5}
    stats.pop.acks = {"T@g": 1}
    stats.group_deleted("h")
    stats.topic_deleted("T")
    at_once(stats.collect())
    assert values(stats, StatsName.GROUP_ACK_NUMS) == {"%RETRY%g_T@g": 1}


def values(stats: BrokerStatsManager, name: StatsName) -> dict[str, int]:
    return {key: item.value for key, item in stats.items(name).items()}
