"""Frames of sends made by the C extension and by pure Python are equal, and so are the errors."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trocket import native
from trocket.remoting import send_template
from trocket.remoting.codec import FRAME_SIZE_MAX
from trocket.remoting.errors import LocalProtocolError
from trocket.remoting.send_template import SendPayload, SendTemplate
from trocket.remoting.signature import Credentials

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

NUMBERS = st.integers(-(2**65), 2**65) | st.sampled_from(
    [0, 9, 10, -1, 10**18 - 1, 10**18, 2**31 - 1, 2**31, -(2**31), 1_795_239_529_771]
)

payloads = st.builds(
    SendPayload,
    properties=st.binary(max_size=20) | st.sampled_from([0, 511, 512, 32_767, 32_768]).map(bytes),
    body=st.binary(max_size=20) | st.just(bytes(FRAME_SIZE_MAX)),
    sys_flag=st.integers(0, 8),
    born_timestamp_ms=NUMBERS,
    is_batch=st.booleans(),
)


def outcome(
    extension: native.Extension | None, payload: SendPayload, opaque: int, oneway: bool, key: bool
) -> bytes | str:
    with pytest.MonkeyPatch.context() as patch:
        send_frame = None if extension is None else extension.send_frame
        patch.setattr(send_template, "_send_frame", send_frame)
        credentials = Credentials("access", "secret") if key else None
        template = SendTemplate("Topic", "Group", credentials=credentials)
        try:
            return template.encode(payload, 3, "broker", opaque, oneway=oneway)
        except LocalProtocolError as error:
            return str(error)


@pytest.mark.slow
@given(payloads, NUMBERS, st.booleans(), st.booleans())
@example(SendPayload(b"A\1b\2", b"body", 0, 1_795_239_529_771), 7, False, False)
def test_frames_and_errors(payload: SendPayload, opaque: int, oneway: bool, key: bool) -> None:
    ours = outcome(native.extension, payload, opaque, oneway, key)
    assert ours == outcome(None, payload, opaque, oneway, key)


def test_the_longest_frame_and_one_byte_more() -> None:
    payload = SendPayload(b"A\1b\2", b"", 0, 1)
    head = len(outcome(None, payload, 1, False, False))
    for size in (FRAME_SIZE_MAX + 4 - head, FRAME_SIZE_MAX + 5 - head):
        payload.body = bytes(size)
        ours = outcome(native.extension, payload, 1, False, False)
        assert ours == outcome(None, payload, 1, False, False)


def test_a_usual_send_is_framed_by_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise AssertionError("pure Python was asked")

    assert native.extension is not None
    template = SendTemplate("Topic", "Group")
    monkeypatch.setattr(send_template, "_send_frame", native.extension.send_frame)
    monkeypatch.setattr(send_template, "_PACK_START", refuse)
    assert template.encode(SendPayload(b"A\1b\2", b"body", 0, 1), 3, None, 5).endswith(b"body")
