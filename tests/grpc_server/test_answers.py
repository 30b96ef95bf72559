"""Answers that are written as bytes: the same as protobuf's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trocket.grpc_protocol.enums import Code
from trocket.grpc_server.answers import SendAnswers

from .caller import MESSAGES

OK = MESSAGES.Status(code=Code.OK, message="OK")
ANSWERS = SendAnswers(OK.SerializeToString())
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(
    st.lists(TEXTS, min_size=1, max_size=4),
    st.integers(0, (1 << 63) - 5) | st.sampled_from([0, 1, 127, 128, 16_383, 16_384]),
    TEXTS,
    TEXTS,
)
def test_an_answer_is_that_of_protobuf(
    ids: list[str], offset: int, transaction_id: str, recall_handle: str
) -> None:
    entries = [
        MESSAGES.SendResultEntry(
            status=OK,
            message_id=each,
            offset=offset + index,
            transaction_id=transaction_id,
            recall_handle=recall_handle,
        )
        for index, each in enumerate(ids)
    ]
    expected = MESSAGES.SendMessageResponse(status=OK, entries=entries)
    found = MESSAGES.SendMessageResponse.FromString(
        ANSWERS.encode(ids, offset, transaction_id, recall_handle)
    )
    assert found == expected
