"""The defect: JSON that only fastjson reads held the loop for seconds.

A heartbeat of 3.7 MiB took 10 s of CPU, a header of 200 KiB 65 ms, in the name server as well. What
is tested is counted work, not time: which sizes are read at all, how many tokens are read between
two yields, and that one key costs the same however many there are.
"""

from __future__ import annotations

import pytest

from trocket.remoting import fastjson, fastjson_reader
from trocket.remoting.bodies import HeartbeatData, TopicRouteData
from trocket.remoting.bodies.base import MISTYPED_SIZE_MAX, REQUEST_SIZE_MAX
from trocket.remoting.codec import FrameDecoder, frame_start
from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.fastjson import REQUEST_TOLERANT_SIZE_MAX


def heartbeat(count: int, group: bytes) -> bytes:
    return b'{"consumerDataSet":[' + b",".join([group] * count) + b"]}"


def test_a_tolerant_heartbeat_is_read_up_to_a_limit() -> None:
    small = heartbeat(100, b"{'groupName':'g'}")
    assert len(HeartbeatData.from_request(small).consumer_data_set) == 100
    large = heartbeat(220_000, b"{'groupName':'g'}")
    assert len(large) > 3_700_000
    with pytest.raises(
        RemoteProtocolError, match=rf"not plain JSON.*for that is {REQUEST_TOLERANT_SIZE_MAX}"
    ):
        HeartbeatData.from_request(heartbeat(10_000, b"{'groupName':'g'}"))
    with pytest.raises(RemoteProtocolError, match="divide the request"):
        HeartbeatData.from_request(large)


def test_plain_json_is_read_up_to_a_limit_and_mistyped_json_to_a_smaller_one() -> None:
    plain = heartbeat(50_000, b'{"groupName":"g"}')
    assert REQUEST_TOLERANT_SIZE_MAX < len(plain) < REQUEST_SIZE_MAX
    assert len(HeartbeatData.from_request(plain).consumer_data_set) == 50_000
    with pytest.raises(RemoteProtocolError, match="divide the request"):
        HeartbeatData.from_request(plain + b" " * REQUEST_SIZE_MAX)
    ordinals = b'{"groupName":"g","consumeType":1}'
    assert HeartbeatData.from_request(heartbeat(100, ordinals)).consumer_data_set
    with pytest.raises(RemoteProtocolError, match="not a HeartbeatData"):
        HeartbeatData.from_request(heartbeat(MISTYPED_SIZE_MAX // len(ordinals), ordinals))


def test_a_tolerant_header_is_read_up_to_a_limit() -> None:
    def decode(fields: bytes) -> FrameDecoder:
        header = b"{code:105,extFields:{" + fields + b"}}"
        decoder = FrameDecoder()
        decoder.receive_data(frame_start(len(header), 0, 0) + header)
        return decoder

    assert decode(b"topic:'T'").error is None
    refusal = decode(b"topic:'" + b"T" * 200 * 1024 + b"'").error
    assert refusal is not None
    assert f"the limit for that is {REQUEST_TOLERANT_SIZE_MAX}" in str(refusal)


def test_answers_are_read_beyond_the_limits_of_requests() -> None:
    brokers = b",".join(b'{brokerName:"b%d",brokerAddrs:{0:"h:1"}}' % i for i in range(2_000))
    assert len(brokers) > REQUEST_TOLERANT_SIZE_MAX
    assert len(TopicRouteData.from_body(b"{brokerDatas:[" + brokers + b"]}").broker_datas) == 2_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "item", [b"{'groupName':'g'}", b"[]", b"''", b"1", b"{{a:1}:2}", b"'\\u0041'", b"/* */NaN"]
)
def test_the_tolerant_reader_yields_after_a_fixed_number_of_tokens(item: bytes) -> None:
    def yields(count: int) -> int:
        steps = fastjson.loads_in_steps(b"[NaN," + b",".join([item] * count) + b"]")
        return sum(1 for _ in steps)

    once, twice = yields(20_000), yields(40_000)
    assert once > 0
    assert 2 * once <= twice <= 2 * once + 1
    # At least one character a token: the length bounds the steps.
    assert twice <= 40_000 * (len(item) + 1) // fastjson_reader.STEP_TOKENS + 1


def test_keys_cannot_be_chosen_to_have_one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    # Python's hash of a number is the number modulo 2^61 - 1.
    modulus = 2**61 - 1
    with pytest.raises(RemoteProtocolError, match="beyond the range of a long"):
        fastjson.loads(b"{%d:1}" % (modulus * 10))
    members = [(a * modulus, b * modulus) for a in range(4) for b in range(4)]
    keys = [fastjson.FrozenObject({"a": a, "b": b}) for a, b in members]
    assert len({hash(key) for key in keys}) == len(keys)
    same = fastjson.FrozenObject({"a": 1, "b": (2.0, True)})
    assert same == fastjson.FrozenObject({"a": 1.0, "b": (2, 1)})
    assert hash(same) == hash(fastjson.FrozenObject({"a": 1.0, "b": (2, 1)}))
