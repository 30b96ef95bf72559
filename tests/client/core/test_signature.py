"""remoting/signature.py against Apache's AclClientRPCHook."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting.signature import (
    SIGNATURE_SIZE,
    Credentials,
    sign,
    signature_of,
    sort_names,
)

from .apache_tables import table

FIELDS = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=6)


@pytest.mark.parametrize("row", table("signatures"), ids=str)
def test_a_request_is_signed_as_by_apache(row):
    fields = dict(row["ext"])
    sign(fields, row["body"].encode(), "AK", "sécret", row["token"])
    assert fields == row["signed"]


@given(fields=FIELDS, body=st.binary(max_size=9), token=st.none() | st.text(max_size=3))
def test_signing_again_gives_the_same(fields, body, token):
    fields.pop("Signature", None)
    sign(fields, body, "AK", "secret", token)
    once = dict(fields)
    sign(fields, body, "AK", "secret", token)
    assert fields == once
    assert len(fields["Signature"]) == SIGNATURE_SIZE


def test_another_account_leaves_nothing_of_the_first():
    fields = {"topic": "T"}
    sign(fields, b"", "one", "secret-1", "token")
    sign(fields, b"", "two", "secret-2", "")
    plain = {"topic": "T"}
    sign(plain, b"", "two", "secret-2")
    assert fields == plain


@given(fields=FIELDS, body=st.binary(max_size=9))
def test_every_value_and_the_body_are_covered(fields, body):
    sign(fields, body, "AK", "secret")
    names = sorted(fields.keys() - {"Signature"}, key=lambda name: name.encode("utf-16-be"))
    content = "".join([fields[name] for name in names]).encode() + body
    code = hmac.new(b"secret", content, hashlib.sha1).digest()
    assert fields["Signature"] == base64.b64encode(code).decode()


def test_names_are_sorted_as_java_sorts_them():
    assert sort_names(["\U0001f600", "\uffff", "b", "B", ""]) == [
        "",
        "B",
        "b",
        "\U0001f600",
        "\uffff",
    ]


def test_the_well_known_signature():
    """RFC 2202, test case 2."""
    expected = bytes.fromhex("effcdf6ae5eb2fa2d27416d5f184df9c259a7c79")
    assert signature_of(b"what do ya want for nothing?", "Jefe") == base64.b64encode(expected)


def test_secrets_are_not_shown():
    shown = repr(Credentials("AK", "hidden-1", "hidden-2"))
    assert "AK" in shown
    assert "hidden" not in shown


@pytest.mark.parametrize(("access", "secret", "name"), [("", "s", "access"), ("a", "", "secret")])
def test_an_empty_key_is_refused(access, secret, name):
    with pytest.raises(ValueError, match=f"the {name}_key is empty"):
        Credentials(access, secret)
