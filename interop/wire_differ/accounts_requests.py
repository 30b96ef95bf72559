"""A script for users and access control lists, at a broker without accounts."""

from __future__ import annotations

from functools import partial

from ...remoting.codec import SerializeType
from ...remoting.request_codes import RequestCode as Code
from .builders import Names, bad, json_body, refused
from .normalise import java_exception_text
from .request import Request, Script

EXCEPTION = (java_exception_text(),)
ENTRY = {"resource": "Topic:T*", "actions": ["Pub", "Sub"], "decision": "Allow"}


def accounts(header: SerializeType) -> Script:
    """Each request, well and wrongly formed: values are checked, and nothing can be stored."""
    names = Names("accounts", header)
    name = names("alice")
    subject = f"User:{name}"
    user = {"username": name}
    acl = {"subject": subject}

    def info(**members: str) -> bytes:
        return json_body({"username": name, **members})

    def policies(**members: object) -> bytes:
        return json_body({**acl, "policies": [{"entries": [{**ENTRY, **members}]}]})

    off = partial(Request, expect=1)
    create, change = Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL
    steps = (
        off("a user", Code.AUTH_CREATE_USER, user, info(password="pw", userType="Normal")),
        off("a password", Code.AUTH_UPDATE_USER, user, info(password="other")),
        off("a user", Code.AUTH_GET_USER, user),
        off("all users", Code.AUTH_LIST_USER),
        off("some users", Code.AUTH_LIST_USER, {"filter": "a"}),
        off("a user", Code.AUTH_DELETE_USER, user),
        bad("no password", Code.AUTH_CREATE_USER, user, info(), expect=16),
        bad("a blank password", Code.AUTH_CREATE_USER, user, info(password=" "), expect=16),
        bad("no name", Code.AUTH_CREATE_USER, {}, info(password="x"), expect=29),
        bad("a blank name", Code.AUTH_CREATE_USER, {"username": " "}, info(password="x"),
            expect=16),
        refused("no body", Code.AUTH_CREATE_USER, user),
        refused("a body that is no JSON", Code.AUTH_CREATE_USER, user, b"{"),
        bad("no name", Code.AUTH_UPDATE_USER, {}, info(password="x"), expect=29),
        refused("no body", Code.AUTH_UPDATE_USER, user),
        bad("a blank name", Code.AUTH_GET_USER, {"username": " "}, expect=29),
        bad("no name", Code.AUTH_GET_USER, expect=29),
        bad("no name", Code.AUTH_DELETE_USER, expect=16),
        off("a policy", create, acl, policies()),
        off("a policy", change, acl, policies(decision="deny")),
        off("a user's", Code.AUTH_GET_ACL, acl),
        off("all", Code.AUTH_LIST_ACL, normalisers=EXCEPTION),
        off("some", Code.AUTH_LIST_ACL, {"subjectFilter": "a", "resourceFilter": "Topic"},
            normalisers=EXCEPTION),
        off("all of a user", Code.AUTH_DELETE_ACL, acl),
        off("an entry", Code.AUTH_DELETE_ACL, {**acl, "resource": "Topic:T*"}),
        bad("an unknown kind of resource", create, acl, policies(resource="Topc:T"), expect=16),
        bad("an unknown action", create, acl, policies(actions=["Publish"]), expect=16),
        bad("any action", create, acl, policies(actions=["Any"]), expect=16),
        bad("no actions", create, acl, policies(actions=[]), expect=16),
        bad("a blank address", create, acl, policies(sourceIps=[" "]), expect=16),
        bad("a wrong address", create, acl, policies(sourceIps=["10.0.0.1/33"]), expect=16),
        bad("an unknown decision", create, acl, policies(decision="Perhaps"), expect=16),
        bad("no decision", change, acl, policies(decision=None), expect=16),
        bad("a policy without entries", create, acl,
            json_body({**acl, "policies": [{"entries": []}]}), expect=16),
        refused("no policies", create, acl, json_body(acl)),
        refused("no body", create, acl),
        refused("a body that is no JSON", change, acl, b"{"),
        bad("a subject that is no user", create, {"subject": "Team:x"},
            json_body({"subject": "Team:x", "policies": [{"entries": [ENTRY]}]}), expect=1),
        bad("no subject", Code.AUTH_GET_ACL, expect=16),
        bad("a subject that is no user", Code.AUTH_GET_ACL, {"subject": "x"}, expect=16),
        bad("no subject", Code.AUTH_DELETE_ACL, expect=16),
        bad("the users of a part that no name has", Code.AUTH_LIST_USER, {"filter": "/"},
            expect=1),
        bad("the lists of a subject that is none", Code.AUTH_LIST_ACL, {"subjectFilter": "/"},
            expect=1, normalisers=EXCEPTION),
    )  # fmt: skip
    return Script("accounts", header, steps)


SCRIPTS = (accounts,)
"""Each creates a script for one kind of header."""
