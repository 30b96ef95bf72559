"""The request codes: RocketMQ's own numbers, and the way back from a cut one."""

from __future__ import annotations

import pytest

from trocket.remoting.request_codes import RequestCode, code_of_short


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("SEND_MESSAGE", 10),
        ("PULL_MESSAGE", 11),
        ("HEART_BEAT", 34),
        ("UPDATE_AND_CREATE_ACL_CONFIG", 50),
        ("REGISTER_BROKER", 103),
        ("GET_ROUTEINFO_BY_TOPIC", 105),
        ("SEND_MESSAGE_V2", 310),
        ("SEND_BATCH_MESSAGE", 320),
        ("LITE_PULL_MESSAGE", 361),
        ("BROKER_HEARTBEAT", 904),
        ("SWITCH_TIMER_ENGINE", 5001),
        ("POP_MESSAGE", 200050),
        ("BATCH_ACK_MESSAGE", 200151),
    ],
)
def test_codes_have_rocketmqs_numbers(name: str, number: int) -> None:
    assert RequestCode[name] == number


def test_no_two_names_share_a_number() -> None:
    # An IntEnum would make the second name an alias of the first, and lose it here.
    assert len(RequestCode.__members__) == len(list(RequestCode))


def test_all_codes_of_5_5_and_the_five_of_4_9_and_our_two_are_there() -> None:
    assert len(RequestCode) == 169 + 5 + 2


@pytest.mark.parametrize(
    ("short", "code"), [(3442, 200050), (3443, 200051), (3448, 200056), (3466, 200074)]
)
def test_a_cut_pop_code_is_found_again(short: int, code: int) -> None:
    assert code_of_short(short) == code


@pytest.mark.parametrize("code", [code for code in RequestCode if code <= 0x7FFF])
def test_a_code_that_fits_16_bits_is_itself(code: RequestCode) -> None:
    assert code_of_short(int(code)) == code


def test_an_unknown_code_is_itself() -> None:
    assert code_of_short(32000) == 32000
    assert code_of_short(-1) == -1
