"""One check of a unit, for recovery, serving and fsck."""

from __future__ import annotations

import pytest

from trocket.common.java_hash import tags_code
from trocket.common.topic_names import SCHEDULE_TOPIC
from trocket.store.format import PRE_BLANK_SIZE
from trocket.store.log.log_reader import LogRecord
from trocket.store.queues.consume_queue_ext import EXT_ADDRESS_MAX
from trocket.store.queues.projection import Places
from trocket.store.queues.unit_check import UnitFault, unit_fault

TAGGED = LogRecord(1000, 200, "T", 3, 7, 0, 1_700_000_000_000, b"TAGS\x01a\x02")
DELAYED = TAGGED._replace(topic=SCHEDULE_TOPIC, queue_id=0, properties=b"DELAY\x011\x02")
LIGHT = TAGGED._replace(
    properties=b"INNER_MULTI_DISPATCH\x01%LMQ%a,Other\x02INNER_MULTI_QUEUE_OFFSET\x015,6\x02"
)
PLACES = Places("1s")
CODE = tags_code("a")


@pytest.mark.parametrize(
    ("unit", "fault"),
    [
        pytest.param((1000, 200, CODE), None, id="right"),
        pytest.param((0, 0, 0), UnitFault.MISSING, id="never written"),
        pytest.param((0, PRE_BLANK_SIZE, 0), UnitFault.MISSING, id="blank"),
        pytest.param((1200, 200, CODE), UnitFault.ELSEWHERE, id="another offset"),
        pytest.param((1000, 201, CODE), UnitFault.ELSEWHERE, id="another size"),
        pytest.param((1000, 200, CODE + 1), UnitFault.TAGS, id="another tags code"),
        pytest.param((1000, 200, EXT_ADDRESS_MAX), UnitFault.EXT, id="an extension's address"),
    ],
)
def test_a_unit_is_what_its_record_says_or_the_fault_says_what_is_wrong(unit, fault):
    place = PLACES.place_in(TAGGED, ("T", 3), 7)
    assert unit_fault(unit, TAGGED, place) is fault


def test_another_time_of_delivery_is_no_fault_of_tags():
    place = PLACES.place_in(DELAYED, (SCHEDULE_TOPIC, 0), 7)
    assert place.tags_code == DELAYED.store_timestamp_ms + 1000
    assert unit_fault((1000, 200, place.tags_code), DELAYED, place) is None
    assert unit_fault((1000, 200, place.tags_code + 1), DELAYED, place) is UnitFault.DELAY


@pytest.mark.parametrize(
    ("key", "queue_offset", "belongs"),
    [
        (("T", 3), 7, True),
        (("T", 3), 8, False),
        (("T", 4), 7, False),
        (("U", 3), 7, False),
        (("%LMQ%a", 0), 5, True),
        (("%LMQ%a", 0), 6, False),
        (("Other", 0), 6, False),
    ],
)
def test_a_record_belongs_into_its_own_queue_and_the_light_ones_that_it_names(
    key, queue_offset, belongs
):
    assert (PLACES.place_in(LIGHT, key, queue_offset) is not None) is belongs
