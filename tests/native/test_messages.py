"""Records decoded as messages by the C extension and by pure Python are equal, at all numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket import native
from trocket.remoting import message_codec
from trocket.remoting.message import MessageExt

from ..constructs import RECORD

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPIC, BODY, PROPERTIES = b"Topic", b"body", b"TAGS\1a\2"

fields = st.fixed_dictionaries(
    {
        "body_crc": st.integers(0, 2**32 - 1) | st.just(2**31),
        "queue_id": INT32,
        "flag": INT32,
        "queue_offset": INT64,
        "physical_offset": INT64,
        "born_timestamp_ms": INT64,
        "store_timestamp_ms": INT64,
        "reconsume_times": INT32,
        "prepared_transaction_offset": INT64,
    }
)


def record_of(fields: dict[str, int]) -> bytes:
    known = {
        "magic": message_codec.MAGIC_V1,
        "sys_flag": 0,
        "born_host": bytes(8),
        "store_host": bytes(8),
        "body_length": len(BODY),
        "body": BODY,
        "topic_length": len(TOPIC),
        "topic": TOPIC,
        "properties_length": len(PROPERTIES),
        "properties": PROPERTIES,
    }
    size = len(RECORD.build({**known, **fields, "total_size": 0}))
    return RECORD.build({**known, **fields, "total_size": size})


def decoded(records: bytes, is_native: bool, monkeypatch: pytest.MonkeyPatch) -> list[MessageExt]:
    with monkeypatch.context() as patch:
        extension = native.extension if is_native else None
        patch.setattr(message_codec, "_decode_plain", message_codec.plain_records(extension))
        return list(message_codec.decode_messages(records))


@given(records=st.lists(fields.map(record_of), min_size=1, max_size=3))
def test_a_message_has_the_numbers_of_its_record(records: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        data = b"".join(records)
        assert decoded(data, True, patch) == decoded(data, False, patch)
