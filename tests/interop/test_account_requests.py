"""Requests 3001 to 3010, well and wrongly formed, at brokers with accounts: Apache's and ours.

`DIFFERENT` has what ours answers otherwise; docs/quirks.md has the reasons.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trocket.interop.accounts import SUPER, Accounts, Generation
from trocket.interop.accounts import open_with_accounts as open_cluster
from trocket.interop.wire import Keys, WireClient
from trocket.remoting.request_codes import RequestCode as Code

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

ALICE = Keys("alice", "secret12")
SUBJECT = "User:alice"
ENTRY = {
    "resource": "Topic:T*",
    "actions": ["Pub", "Sub"],
    "sourceIps": ["127.0.0.1"],
    "decision": "Allow",
}


class Step(NamedTuple):
    """A request with a name."""

    name: str
    code: Code
    fields: dict[str, object]
    body: object = None
    keys: Keys = SUPER.keys


class Told(NamedTuple):
    """What is compared; `text` is "" where Apache's is that of a Java exception."""

    code: int
    text: str
    body: object


def user(name: str, code: Code, username: str, keys: Keys = SUPER.keys, **members: str) -> Step:
    return Step(name, code, {"username": username}, {"username": username, **members}, keys)


def acl(
    name: str,
    code: Code = Code.AUTH_CREATE_ACL,
    subject: str = SUBJECT,
    policy_type: str | None = None,
    keys: Keys = SUPER.keys,
    **changed: Any,
) -> Step:
    policy = {"policyType": policy_type, "entries": [{**ENTRY, **changed}]}
    body = {"subject": subject, "policies": [policy]}
    return Step(name, code, {"subject": subject}, body, keys)


def steps() -> Iterator[Step]:
    yield from users()
    yield from new_policies()
    yield from old_policies()
    yield from rights()


def users() -> Iterator[Step]:
    create, update = Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER
    get, listed = Code.AUTH_GET_USER, Code.AUTH_LIST_USER
    yield user("create", create, "alice", password="secret12", userType="Normal")
    yield user("again", create, "alice", password="secret12")
    yield user("a super user", create, "boss", password="secret12", userType="super")
    yield user("no password", create, "bob")
    yield user("a blank password", create, "bob", password="  ")
    yield user("an empty name", create, "", password="x")
    yield user("a blank name", create, " ", password="x")
    yield Step("no name", create, {}, {"username": "zed", "password": "p"})
    yield Step("no body", create, {"username": "zed"})
    yield Step("an array", create, {"username": "zed"}, [])
    yield user("a name with a colon", create, "a:b", password="x")
    yield user("an unknown type", create, "odd", password="x", userType="Sper")
    yield user("disable", update, "alice", userStatus="disable")
    yield user("an unknown status", update, "alice", userStatus="off")
    yield user("nothing new", update, "alice")
    yield user("nobody", update, "nobody", password="x")
    yield user("an empty name", update, "", password="x")
    yield Step("no body", update, {"username": "alice"})
    for name in ("alice", "nobody", " "):
        yield Step(f"get {name!r}", get, {"username": name})
    for part in ("ali", "zzz"):
        yield Step(f"list {part}", listed, {"filter": part})
    yield user("enable", update, "alice", userStatus="enable")


def new_policies() -> Iterator[Step]:
    yield acl("create")
    yield acl("merge", actions=["get", "ALL"], resource="group:g")
    yield acl("everything", resource="*")
    yield acl("no name", resource="Topic:")
    yield acl("two stars", resource="Topic:a*b*")
    yield acl("a subject in small letters", subject="user:alice", resource="Topic:lower")
    yield acl("no such kind", resource="Topc:x")
    yield acl("no such action", actions=["Pubb"])
    yield acl("any action", actions=["Any"])
    yield acl("no action", actions=[])
    yield acl("a blank address", sourceIps=[" "])
    for address in (
        "1.2.3",
        "10.0.0.1/33",
        "10.0.0.1-10.0.0.9",
        "10.0.0.*",
        "::1",
        "2001:db8::/32",
    ):
        yield acl(f"from {address}", sourceIps=[address], resource="Topic:ip")
    yield acl("no such decision", decision="Perhaps")
    yield acl("no decision", decision=None)
    yield acl("nobody", subject="User:nobody")
    yield acl("no user", subject="Team:x")
    both = {"subject": SUBJECT, "policies": [{"entries": [{**ENTRY, "resource": "Topic:wins"}]}]}
    yield Step("the body's subject", Code.AUTH_CREATE_ACL, {"subject": "User:boss"}, both)
    header = {"policies": [{"entries": [{**ENTRY, "resource": "Topic:header"}]}]}
    yield Step("the header's subject", Code.AUTH_CREATE_ACL, {"subject": SUBJECT}, header)
    yield Step("no policies", Code.AUTH_CREATE_ACL, {"subject": SUBJECT}, {"subject": SUBJECT})
    empty = {"subject": SUBJECT, "policies": [{"entries": []}]}
    yield Step("no entries", Code.AUTH_CREATE_ACL, {"subject": SUBJECT}, empty)
    yield Step("no body", Code.AUTH_CREATE_ACL, {"subject": SUBJECT})


def old_policies() -> Iterator[Step]:
    yield acl("a default", policy_type="default")
    yield acl("update", Code.AUTH_UPDATE_ACL, actions=["Pub"], sourceIps=None, decision="deny")
    yield acl("update nobody", Code.AUTH_UPDATE_ACL, subject="User:nobody")
    for subject in (SUBJECT, "User:nobody", "User:boss", "x"):
        yield Step(f"get {subject}", Code.AUTH_GET_ACL, {"subject": subject})
    yield Step("get no subject", Code.AUTH_GET_ACL, {})
    for fields in ({}, {"subjectFilter": "ali"}, {"resourceFilter": "low"}, {"subjectFilter": "z"},
                   {"resourceFilter": "zzz"}):  # fmt: skip
        yield Step(f"list {fields}", Code.AUTH_LIST_ACL, dict(fields))
    entry = {"subject": SUBJECT, "resource": "Topic:lower"}
    yield Step("delete an entry", Code.AUTH_DELETE_ACL, dict(entry))
    yield Step("delete it again", Code.AUTH_DELETE_ACL, dict(entry))
    default = {"subject": SUBJECT, "policyType": "Default", "resource": "Topic:T*"}
    yield Step("delete the default", Code.AUTH_DELETE_ACL, dict(default))
    yield Step("what is left", Code.AUTH_GET_ACL, {"subject": SUBJECT})
    yield Step("delete all", Code.AUTH_DELETE_ACL, {"subject": SUBJECT})
    yield Step("delete all again", Code.AUTH_DELETE_ACL, {"subject": SUBJECT})
    yield Step("delete nobody's", Code.AUTH_DELETE_ACL, {"subject": "User:nobody"})
    yield Step("delete no subject", Code.AUTH_DELETE_ACL, {})


def rights() -> Iterator[Step]:
    create, update, delete = Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER
    get, listed = Code.AUTH_GET_USER, Code.AUTH_LIST_USER
    everything = {"resource": "Cluster:*", "actions": ["All"], "sourceIps": None}
    yield acl("the cluster's rights", **everything)
    yield user("a normal user's super user", create, "evil", ALICE, password="x", userType="Super")
    yield user("a normal user's user", create, "fine", ALICE, password="x")
    yield user("a normal user's promotion", update, "fine", ALICE, userType="Super")
    yield user("a super user's password", update, "boss", ALICE, password="x")
    yield Step("delete a super user", delete, {"username": "boss"}, None, ALICE)
    yield Step("a super user's password is told", get, {"username": "boss"}, None, ALICE)
    yield Step("a wrong signature", listed, {}, None, Keys("alice", "wrong"))
    yield Step("delete", delete, {"username": "alice"})
    yield Step("delete again", delete, {"username": "alice"})
    yield Step("delete an empty name", delete, {"username": ""})
    yield Step("its policies are gone", Code.AUTH_LIST_ACL, {"subjectFilter": "alice"})


DIFFERENT = {
    "AUTH_CREATE_USER: an unknown type": (29, 0),
    "AUTH_UPDATE_USER: an unknown status": (29, 0),
    "AUTH_CREATE_ACL: no such action": (16, 16),  # the text
    "AUTH_CREATE_ACL: no user": (1, 1),  # the text
    "AUTH_GET_USER: a super user's password is told": (0, 0),  # the password
}
"""By request: our code and Apache's."""


def play(name: str, folder: Path) -> dict[str, Told]:
    cluster = open_cluster(name, folder, Accounts(Generation.ACL_2, ()), {})
    told: dict[str, Told] = {}
    try:
        cluster.start()
        for step in steps():
            body = b"" if step.body is None else json.dumps(step.body).encode()
            with WireClient(cluster.broker_address, keys=step.keys) as wire:
                answer = wire.call(step.code, step.fields, body)
            text = "" if answer.code == 1 and not_words(answer.remark) else answer.remark
            found = json.loads(answer.body) if answer.body else None
            told[f"{step.code.name}: {step.name}"] = Told(answer.code, text, found)
    finally:
        cluster.close()
    return told


def not_words(remark: str) -> bool:
    """Whether a remark is that of a Java exception, or ours in place of it."""
    return "Exception" in remark or "cannot be read" in remark or "acl is null" in remark


def test_every_request_is_answered_as_apache_answers_it(tmp_path: Path) -> None:
    ours, apaches = (play(name, tmp_path / name) for name in ("trocket", "apache-5.5.0"))
    assert ours.keys() == apaches.keys()
    differing = {
        name: (ours[name].code, apaches[name].code) for name in ours if ours[name] != apaches[name]
    }
    assert differing == DIFFERENT, {
        name: (ours[name], apaches[name]) for name in differing.keys() ^ DIFFERENT.keys()
    }
