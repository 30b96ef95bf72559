"""When the oldest file of a log is deleted, by what a broker tells."""

from __future__ import annotations

from typing import Any

import pytest

from trocket.client.admin.broker_stats import BrokerStats, read_broker_stats
from trocket.operations.file_deletion import FileDeletion, file_deletion

MEBIBYTE = 1 << 20
HOUR_MS = 3_600_000
SETTINGS = {"mappedFileSizeCommitLog": str(MEBIBYTE), "fileReservedTime": "48", "deleteWhen": "02"}


def stats(**texts: Any) -> BrokerStats:
    known = {
        "commitLogMinOffset": "0",
        "commitLogMaxOffset": str(3 * MEBIBYTE + 1),
        "commitLogDiskRatio": "0.5",
        "earliestMessageTimeStamp": "1000",
        **texts,
    }
    return read_broker_stats(known, broker_name="broker-a", broker_id=0, address="10.0.0.1:10911")


def test_an_expired_file_is_deleted_at_an_hour() -> None:
    assert file_deletion(stats(), SETTINGS) == FileDeletion(
        state="AT_HOUR",
        files=4,
        not_before_ms=1000 + 48 * HOUR_MS,
        kept_hours=48,
        delete_hours="02",
        used=0.5,
        any_hour_above=0.75,
        any_age_above=0.85,
        refused_above=0.9,
        is_forced=True,
    )


@pytest.mark.parametrize(
    ("texts", "settings", "state"),
    [
        ({"commitLogDiskRatio": "0.76"}, {}, "AT_ANY_HOUR"),
        ({"commitLogDiskRatio": "0.86"}, {}, "AT_ANY_AGE"),
        ({"commitLogDiskRatio": "0.86"}, {"cleanFileForciblyEnable": "false"}, "AT_ANY_HOUR"),
        ({"commitLogDiskRatio": "0.76"}, {"diskMaxUsedSpaceRatio": "80"}, "AT_HOUR"),
        ({"commitLogDiskRatio": "?"}, {}, "AT_HOUR"),
        ({"commitLogMaxOffset": str(MEBIBYTE)}, {}, "ONLY_FILE"),
        ({"commitLogMaxOffset": "0"}, {}, "ONLY_FILE"),
        ({"commitLogMinOffset": str(3 * MEBIBYTE)}, {}, "ONLY_FILE"),
        ({"commitLogMaxOffset": "many"}, {}, "UNKNOWN"),
        ({"commitLogMinOffset": str(9 * MEBIBYTE)}, {}, "UNKNOWN"),
        ({}, {"mappedFileSizeCommitLog": "0"}, "UNKNOWN"),
    ],
)
def test_states(texts: dict[str, str], settings: dict[str, str], state: str) -> None:
    assert file_deletion(stats(**texts), SETTINGS | settings).state == state


def test_what_a_broker_does_not_tell_is_rocketmqs_default() -> None:
    found = file_deletion(stats(earliestMessageTimeStamp="-1"), {})
    assert (found.kept_hours, found.delete_hours, found.files) == (72, "04", 1)
    assert found.not_before_ms is None
