"""29, 30, 31 and 32."""

from __future__ import annotations

import pytest

from trocket.remoting.request_codes import RequestCode

from ..harness import BrokerTables

QUEUE = {"topic": "T", "queueId": "0"}


def ask(code, fields, queues=None):
    broker = BrokerTables()
    broker.store.queues = {("T", 0): (5, 9)} if queues is None else queues
    return broker.ask(code, fields)


@pytest.mark.parametrize(
    ("code", "more", "fields", "remark"),
    [
        (RequestCode.GET_MAX_OFFSET, {}, {"offset": "9"}, None),
        (RequestCode.GET_MAX_OFFSET, {"committed": "true"}, {"offset": "9"}, None),
        (RequestCode.GET_MIN_OFFSET, {}, {"offset": "5"}, ""),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, {}, {"timestamp": "5000"}, None),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": "7000"}, {"offset": "7"}, None),
        (
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            {"timestamp": "7000", "boundaryType": "lower"},
            {"offset": "7"},
            None,
        ),
        (
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            {"timestamp": "7000", "boundaryType": "UPPER"},
            {"offset": "8"},
            None,
        ),
    ],
)
def test_the_store_is_asked(code, more, fields, remark):
    answer = ask(code, QUEUE | more)
    assert (answer.code, answer.ext_fields, answer.remark) == (0, fields, remark)


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_MAX_OFFSET, {"offset": "0"}),
        (RequestCode.GET_MIN_OFFSET, {"offset": "0"}),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, {"timestamp": "-1"}),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"offset": "0"}),
    ],
)
@pytest.mark.parametrize("queue_id", ["0", "-1", "2147483647"])
def test_a_queue_that_is_not_there_is_an_empty_one(code, fields, queue_id):
    answer = ask(code, {"topic": "../x", "queueId": queue_id, "timestamp": "1"}, {})
    assert (answer.code, answer.ext_fields) == (0, fields)


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"queueId": "0"}, "the custom field <topic> is null"),
        ({"topic": "T"}, "the custom field <queueId> is null"),
        (
            {"topic": "T", "queueId": "x"},
            "the custom field <queueId> is not an integer of 32 bits: 'x'",
        ),
    ],
)
def test_a_bad_header_is_refused(fields, remark):
    answer = ask(RequestCode.GET_MAX_OFFSET, fields)
    assert (answer.code, answer.remark) == (1, remark)
