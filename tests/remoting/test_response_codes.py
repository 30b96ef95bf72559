"""The response codes: RocketMQ's own numbers."""

from __future__ import annotations

import pytest

from trocket.remoting.response_codes import ResponseCode


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("SUCCESS", 0),
        ("SYSTEM_ERROR", 1),
        ("SYSTEM_BUSY", 2),
        ("REQUEST_CODE_NOT_SUPPORTED", 3),
        ("MESSAGE_ILLEGAL", 13),
        ("TOPIC_NOT_EXIST", 17),
        ("PULL_OFFSET_MOVED", 21),
        ("SUBSCRIPTION_GROUP_NOT_EXIST", 26),
        ("CONSUMER_NOT_ONLINE", 206),
        ("GO_AWAY", 1500),
        ("LITE_SUBSCRIPTION_QUOTA_EXCEEDED", 2018),
        ("POLICY_NOT_EXIST", 3002),
        ("RPC_TIME_OUT", -1006),
    ],
)
def test_codes_have_rocketmqs_numbers(name: str, number: int) -> None:
    assert ResponseCode[name] == number


def test_no_two_names_share_a_number() -> None:
    assert len(ResponseCode.__members__) == len(list(ResponseCode))
