"""Tables of texts and of offsets."""

from __future__ import annotations

import pytest

from trocket.remoting.bodies import ConsumerOffsetSerializeWrapper, DataVersion, KVTable
from trocket.remoting.errors import RemoteProtocolError


def test_a_table_of_texts_comes_back_the_same() -> None:
    body = KVTable({"a": "1", "é": ""})
    assert body.to_body() == '{"table":{"a":"1","é":""}}'.encode()
    assert KVTable.from_body(body.to_body()) == body


def test_offsets_are_written_with_bare_queue_ids_as_by_rocketmq() -> None:
    wrapper = ConsumerOffsetSerializeWrapper({"t@g": {0: 5, 1: 2**40}}, DataVersion(1, 2, 3))
    assert wrapper.to_body() == (
        b'{"offsetTable":{"t@g":{0:5,1:1099511627776}},'
        b'"dataVersion":{"timestamp":1,"counter":2,"stateVersion":3}}'
    )
    assert ConsumerOffsetSerializeWrapper.from_body(wrapper.to_body()) == wrapper


def test_an_offset_that_is_no_number_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="not a ConsumerOffsetSerializeWrapper"):
        ConsumerOffsetSerializeWrapper.from_body(b'{"offsetTable":{"t@g":{0:"x"}}}')
