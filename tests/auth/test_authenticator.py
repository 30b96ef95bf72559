"""Signatures: what is proved by one, and what is refused."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.auth.authenticator import ORDERS_MAX, Authenticator, SigningKey
from trocket.auth.model import User, UserStatus
from trocket.remoting.codec import RemotingCommand, decode_frame, encode
from trocket.remoting.errors import RequestRefused
from trocket.remoting.mq_version import V4_9_3, V4_9_4
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.signature import SIGNATURE, sign, signature_of

from .signed import ALICE, signed

FIELDS = {"b": "T", "a": "PG", "i": "UNIQ_KEY\x01ü\x02", "z": ""}


@pytest.fixture
def authenticator():
    disabled = User("bob", "secret-of-bob", user_status=UserStatus.DISABLE)
    return Authenticator({each.username: each for each in (ALICE, disabled)})


def refusal(authenticator, request):
    with pytest.raises(RequestRefused) as caught:
        authenticator.authenticate(request)
    return caught.value.remark


def changed(request, **fields):
    return RemotingCommand(request.code, {**request.ext_fields, **fields}, request.body)


@given(st.text(min_size=1, max_size=200), st.lists(st.binary(max_size=200), max_size=3))
def test_a_prepared_key_signs_as_the_client_does(password, parts) -> None:
    assert SigningKey(password).sign(*parts) == signature_of(b"".join(parts), password)


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_right_signature_proves_the_user(authenticator, serialize_type) -> None:
    fields = FIELDS if serialize_type == 0 else {k: v for k, v in FIELDS.items() if v}
    request = signed(310, fields, b"body", user=ALICE, serialize_type=serialize_type)
    assert authenticator.authenticate(decode_frame(encode(request))) == ALICE


def test_an_empty_value_is_signed_as_nothing_in_a_binary_header(authenticator) -> None:
    request = signed(310, FIELDS, b"body", user=ALICE, serialize_type=1)
    assert authenticator.authenticate(decode_frame(encode(request))) == ALICE


def test_the_refusals_are_rocketmqs(authenticator) -> None:
    request = signed(310, FIELDS, b"body", user=ALICE)
    assert refusal(authenticator, RemotingCommand(310)) == "username cannot be null."
    assert refusal(authenticator, changed(request, AccessKey="")) == "username cannot be null."
    nobody = signed(310, FIELDS, user=User("nobody", "x"))
    assert refusal(authenticator, nobody) == "User:nobody is not found."
    bob = signed(310, FIELDS, user=User("bob", "secret-of-bob"))
    assert refusal(authenticator, bob) == "User:bob is disabled."
    wrong = signed(310, FIELDS, user=User("alice", "wrong"))
    assert refusal(authenticator, wrong) == "check signature failed."


@pytest.mark.parametrize(
    "forge",
    [
        lambda right: "",
        lambda right: right[:-1],
        lambda right: right[:27],
        lambda right: right + "=",
        lambda right: f" {right}",
        lambda right: right.swapcase(),
        lambda right: "not Base64 at all, and ümlauts",
        lambda right: b64encode(b64decode(right)[:10]).decode(),
        lambda right: "A" * 65_536,
        lambda right: b64decode(right).hex(),
    ],
)
def test_only_the_whole_signature_counts(authenticator, forge) -> None:
    request = signed(310, FIELDS, b"body", user=ALICE)
    forged = changed(request, Signature=forge(request.ext_fields[SIGNATURE]))
    assert refusal(authenticator, forged) == "check signature failed."


def test_without_a_signature_a_name_proves_nothing(authenticator) -> None:
    request = RemotingCommand(310, {"AccessKey": "alice", "b": "T"})
    assert refusal(authenticator, request) == "check signature failed."


def test_no_field_and_no_byte_of_a_signed_request_can_be_changed(authenticator) -> None:
    request = signed(310, FIELDS, b"body", user=ALICE)
    for name in FIELDS:
        assert refusal(authenticator, changed(request, **{name: "other"})), name
    assert refusal(authenticator, changed(request, more="x"))
    less = {name: value for name, value in request.ext_fields.items() if name != "b"}
    assert refusal(authenticator, RemotingCommand(310, less, b"body"))
    assert refusal(authenticator, RemotingCommand(310, request.ext_fields, b"bodY"))
    assert refusal(authenticator, RemotingCommand(310, request.ext_fields, b""))


def test_a_replay_is_not_noticed_not_even_with_another_code(authenticator) -> None:
    """The protocol signs neither code nor time: docs/quirks.md."""
    request = signed(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}, user=ALICE)
    again = RemotingCommand(int(RequestCode.GET_MIN_OFFSET), request.ext_fields)
    assert authenticator.authenticate(again) == ALICE


@pytest.mark.parametrize(("version", "is_signed"), [(V4_9_3, False), (V4_9_4, True)])
def test_clients_up_to_4_9_3_add_a_flag_after_they_have_signed(
    authenticator, version, is_signed
) -> None:
    fields = {"topic": "T", "key": "k"}
    if is_signed:
        fields["_UNIQUE_KEY_QUERY"] = "true"
    sign(fields, b"", ALICE.username, ALICE.password)
    fields["_UNIQUE_KEY_QUERY"] = "true"
    request = RemotingCommand(12, fields, version=version)
    assert authenticator.authenticate(request) == ALICE
    other = RemotingCommand(12, fields, version=V4_9_3 + V4_9_4 - version)
    assert refusal(authenticator, other) == "check signature failed."


def test_a_new_password_counts_at_once() -> None:
    users = {"alice": ALICE}
    authenticator = Authenticator(users)
    request = signed(310, FIELDS, user=ALICE)
    assert authenticator.authenticate(request) is ALICE
    users["alice"] = User("alice", "new-secret")
    assert refusal(authenticator, request) == "check signature failed."


def test_many_sets_of_fields_are_still_signed_right(authenticator) -> None:
    for number in range(ORDERS_MAX + 10):
        request = signed(310, {f"z{number}": "1", "a": "2", f"M{number}": "3"}, user=ALICE)
        assert authenticator.authenticate(request) is ALICE
