"""Requests 3001 to 3010: what Apache's 5.5.0 answered, and what ours answers differently."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trocket.auth.accounts import Accounts
from trocket.auth.admin import AuthAdmin
from trocket.auth.model import User, UserType
from trocket.disk.errors import StoreIOError
from trocket.remoting.channel import Deferred
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RequestRefused
from trocket.remoting.request_codes import RequestCode as Code

ENTRY = {
    "resource": "Topic:T*",
    "actions": ["Pub", "Sub"],
    "sourceIps": ["127.0.0.1"],
    "decision": "Allow",
}


class Server:
    """The processors with a table, and the user whose valid signature every request has."""

    def __init__(self, *, is_off: bool = False, is_slave: bool = False) -> None:
        self.is_disk_full = False
        self.accounts = Accounts(self._save)
        self.accounts.create_user(User("root", "rootpassword", UserType.SUPER))
        self.accounts.create_user(User("alice", "secret12"))
        self.by: str | None = "root"
        self.admin = AuthAdmin(
            None if is_off else self.accounts,
            requester=lambda request: self.accounts.users.get(self.by or ""),
            start="s1",
            is_slave=is_slave,
        )

    def _save(self, name: str, text: bytes) -> None:
        if self.is_disk_full:
            raise StoreIOError("/auth.json", "no space left")

    async def ask(self, code: Code, body: object = b"", **fields: str) -> tuple[int, Any]:
        """Code, and the remark of a refusal or the body of an answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = RemotingCommand(code, fields, data)
        try:
            answer = self.admin.processors[code](request, None)  # type: ignore[arg-type]
            if isinstance(answer, Deferred):
                answer = await answer.run()
        except RequestRefused as refusal:
            return refusal.code, refusal.remark
        assert isinstance(answer, RemotingCommand)
        assert answer.remark == "not set any response code"
        return answer.code, json.loads(answer.body) if answer.body else None

    async def user(self, code: Code, username: str, **members: str) -> tuple[int, Any]:
        return await self.ask(code, {"username": username, **members}, username=username)

    async def acl(self, subject: str = "User:alice", **members: Any) -> tuple[int, Any]:
        body = {"subject": subject, "policies": [{"entries": [{**ENTRY, **members}]}]}
        return await self.ask(Code.AUTH_CREATE_ACL, body, subject=subject)


@pytest.fixture
def server() -> Server:
    return Server()


OK = (0, None)


async def test_a_user_is_created_changed_listed_and_deleted(server: Server) -> None:
    create, update, delete = Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER
    assert await server.user(create, "bob", password="pw", userType="normal") == OK
    assert await server.user(create, "bob", password="pw") == (16, "The user is existed")
    bob = {"username": "bob", "password": "pw", "userType": "Normal", "userStatus": "enable"}
    assert await server.ask(Code.AUTH_GET_USER, username="bob") == (0, bob)
    assert await server.user(update, "bob", userStatus="DISABLE", password=" ") == OK
    changed = {**bob, "userStatus": "disable"}
    assert await server.ask(Code.AUTH_LIST_USER, filter="bo") == (0, [changed])
    assert await server.ask(Code.AUTH_LIST_USER, filter="zzz") == OK
    assert len((await server.ask(Code.AUTH_LIST_USER, filter=" "))[1]) == 3
    assert await server.ask(delete, username="bob") == OK
    assert await server.ask(delete, username="bob") == OK
    assert await server.ask(Code.AUTH_GET_USER, username="bob") == OK


async def test_an_acl_is_created_changed_listed_and_deleted(server: Server) -> None:
    assert await server.ask(Code.AUTH_GET_ACL, subject="User:alice") == OK
    assert await server.acl() == OK
    more = {"resource": "group:g", "actions": ["get", "ALL"], "decision": "deny"}
    body = {"policies": [{"policyType": "default", "entries": [more]}]}
    assert await server.ask(Code.AUTH_UPDATE_ACL, body, subject="user:alice") == OK
    entry = {"resource": "Group:g", "actions": ["Get", "All"], "decision": "Deny"}
    custom = {"policyType": "Custom", "entries": [ENTRY]}
    acl = {
        "subject": "User:alice",
        "policies": [custom, {"policyType": "Default", "entries": [entry]}],
    }
    assert await server.ask(Code.AUTH_GET_ACL, subject="User:alice") == (0, acl)
    assert await server.ask(Code.AUTH_LIST_ACL) == (0, [acl])
    only = {**acl, "policies": [custom]}
    assert await server.ask(Code.AUTH_LIST_ACL, resourceFilter="Topic") == (0, [only])
    assert await server.ask(Code.AUTH_LIST_ACL, subjectFilter="zzz") == OK
    assert await server.acl(actions=["Sub"], sourceIps=None) == OK
    delete = Code.AUTH_DELETE_ACL
    fields = {"subject": "User:alice", "resource": "Group:g"}
    assert await server.ask(delete, **fields, policyType="Default") == OK
    changed = {"resource": "Topic:T*", "actions": ["Sub"], "decision": "Allow"}
    assert await server.ask(Code.AUTH_LIST_ACL) == (
        0,
        [{**acl, "policies": [{"policyType": "Custom", "entries": [changed]}]}],
    )
    assert await server.ask(delete, subject="User:alice") == OK
    assert await server.ask(delete, subject="User:alice") == (16, "The acl is not exist.")
    assert await server.ask(Code.AUTH_LIST_ACL) == OK


REFUSED_USERS = [
    (Code.AUTH_CREATE_USER, "bob", {}, 16, "password can not be blank"),
    (Code.AUTH_CREATE_USER, "bob", {"password": "  "}, 16, "password can not be blank"),
    (Code.AUTH_CREATE_USER, "", {"password": "x"}, 29, "The username is blank"),
    (Code.AUTH_CREATE_USER, " ", {"password": "x"}, 16, "username can not be blank"),
    (Code.AUTH_UPDATE_USER, "", {"password": "x"}, 29, "The username is blank"),
    (Code.AUTH_UPDATE_USER, "nobody", {"password": "x"}, 16, "The user is not exist"),
    (Code.AUTH_DELETE_USER, "", {}, 16, "username can not be blank"),
    (Code.AUTH_GET_USER, " ", {}, 29, "The username is blank"),
    # Apache takes the default, or changes nothing.
    (
        Code.AUTH_CREATE_USER,
        "bob",
        {"password": "x", "userType": "Sper"},
        29,
        "the userType 'Sper' is not Super or Normal",
    ),
    (
        Code.AUTH_UPDATE_USER,
        "alice",
        {"userStatus": "off"},
        29,
        "the userStatus 'off' is not enable or disable",
    ),
]


@pytest.mark.parametrize(("code", "name", "members", "refusal", "remark"), REFUSED_USERS)
async def test_a_wrong_user_is_refused(
    server: Server, code: Code, name: str, members: dict[str, str], refusal: int, remark: str
) -> None:
    assert await server.user(code, name, **members) == (refusal, remark)


REFUSED_ENTRIES = [
    ({"resource": "Topc:x"}, "The resource is null."),
    ({"actions": []}, "The actions is empty."),
    ({"actions": ["Any"]}, "The actions can not be Any."),
    ({"sourceIps": [" "]}, "The source ip is empty."),
    ({"sourceIps": ["1.2.3"]}, "The source ip is invalid."),
    ({"sourceIps": ["10.0.0.1/33"]}, "The source ip is invalid."),
    ({"decision": "Perhaps"}, "The decision is null or illegal."),
    ({"decision": None}, "The decision is null or illegal."),
    ({"subject": "User:nobody"}, "The subject of User:nobody is not exist."),
]


@pytest.mark.parametrize(("members", "remark"), REFUSED_ENTRIES)
async def test_a_wrong_entry_is_refused(
    server: Server, members: dict[str, Any], remark: str
) -> None:
    assert await server.acl(**members) == (16, remark)
    assert server.accounts.acls == {}


async def test_wrong_requests_about_acls_are_refused(server: Server) -> None:
    create, delete, get = Code.AUTH_CREATE_ACL, Code.AUTH_DELETE_ACL, Code.AUTH_GET_ACL
    alice = {"subject": "User:alice"}
    null = (1, "The body of acl is null")
    assert await server.ask(create, **alice) == null
    assert await server.ask(create, {**alice, "policies": []}, **alice) == null
    empty = {"policies": [{"entries": []}]}
    assert await server.ask(create, empty, **alice) == (16, "The policies is empty.")
    code, remark = await server.acl(subject="Team:x")
    assert (code, remark) == (1, "the subject 'Team:x' is not User: and a user's name")
    assert (await server.ask(create, b"{", **alice))[0] == 1
    assert await server.ask(get) == (16, "The subject is null.")
    assert await server.ask(get, subject="User:nobody") == (16, "The subject is not exist.")
    assert await server.ask(delete) == (16, "The subject is null.")
    assert await server.ask(delete, subject="User:nobody") == (16, "The subject is not exist.")
    odd = {"policies": [{"policyType": "Usual", "entries": [ENTRY]}]}
    assert (await server.ask(create, odd, **alice))[0] == 29


async def test_a_resource_that_cannot_be_read_does_not_delete_all_entries(server: Server) -> None:
    assert await server.acl() == OK
    code, remark = await server.ask(Code.AUTH_DELETE_ACL, subject="User:alice", resource="Topc:x")
    assert code == 29
    assert remark.startswith("the resource 'Topc:x' is not *, or Topic:")
    assert "User:alice" in server.accounts.acls


async def test_only_a_super_user_makes_and_changes_super_users(server: Server) -> None:
    server.by = "alice"
    create, update = Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER
    created = (1, "The super user can only be create by super user")
    assert await server.user(create, "evil", password="x", userType="Super") == created
    assert await server.user(create, "fine", password="x") == OK
    text = "The super user can only be update by super user"
    assert await server.user(update, "fine", userType="Super") == (1, text)
    assert await server.user(update, "root", password="x") == (16, text)
    assert await server.ask(Code.AUTH_DELETE_USER, username="root") == (16, text)
    server.by = None  # the code is on the white list, say
    assert await server.user(create, "evil", password="x", userType="Super") == created


async def test_only_a_super_user_sees_passwords(server: Server) -> None:
    server.by = "alice"
    assert await server.ask(Code.AUTH_GET_USER, username="alice") == (
        0,
        {"username": "alice", "userType": "Normal", "userStatus": "enable"},
    )
    assert "password" not in str(await server.ask(Code.AUTH_LIST_USER))


async def test_long_lists_are_answered_in_steps(server: Server) -> None:
    for number in range(120):
        server.accounts.create_user(User(f"user{number:03}", "x" * 200))
    request = RemotingCommand(Code.AUTH_LIST_USER, {"filter": "user"})
    answer = server.admin.processors[request.code](request, None)  # type: ignore[arg-type]
    assert isinstance(answer, Deferred)
    code, users = await server.ask(Code.AUTH_LIST_USER, filter="user")
    assert code == 0
    assert [user["username"] for user in users] == [f"user{number:03}" for number in range(120)]


async def test_a_slave_that_has_the_accounts_gets_none(server: Server) -> None:
    async def version(known: str) -> tuple[str | None, bool]:
        request = RemotingCommand(Code.AUTH_LIST_USER, {"accountsVersion": known})
        answer = server.admin.processors[request.code](request, None)  # type: ignore[arg-type]
        assert isinstance(answer, RemotingCommand)
        return answer.ext_fields.get("accountsVersion"), bool(answer.body)

    first, has_body = await version("")
    assert first is not None
    assert first.startswith("s1-")
    assert has_body
    assert await version(first) == (first, False)
    server.accounts.delete_user("alice")
    second, has_body = await version(first)
    assert second != first
    assert has_body
    server.by = None
    assert await version(first) == (None, True)


async def test_a_bad_body_with_a_password_is_refused_without_it(server: Server) -> None:
    for body in (b'{"password":"geheim', b'{"password":"geheim","userType":[1]}', b"geheim"):
        code, remark = await server.ask(Code.AUTH_CREATE_USER, body, username="bob")
        assert code == 1
        assert remark.startswith("the body of request 3001 cannot be read: ")
        assert "geheim" not in remark


async def test_a_change_is_answered_when_it_is_saved(server: Server) -> None:
    server.is_disk_full = True
    code, remark = await server.user(Code.AUTH_CREATE_USER, "bob", password="x")
    assert code == 1
    assert "no space left" in remark


async def test_without_accounts_values_are_checked_and_then_nothing_is_served() -> None:
    server = Server(is_off=True)
    create = Code.AUTH_CREATE_USER
    assert await server.user(create, "bob") == (16, "password can not be blank")
    assert await server.user(create, "", password="x") == (29, "The username is blank")
    assert (await server.acl(actions=[])) == (16, "The actions is empty.")
    assert (await server.ask(Code.AUTH_DELETE_USER))[0] == 16
    for code, remark in (
        await server.user(create, "bob", password="x"),
        await server.user(Code.AUTH_UPDATE_USER, "bob", password="x"),
        await server.ask(Code.AUTH_DELETE_USER, username="bob"),
        await server.ask(Code.AUTH_GET_USER, username="bob"),
        await server.ask(Code.AUTH_LIST_USER),
        await server.acl(),
        await server.ask(Code.AUTH_DELETE_ACL, subject="User:alice"),
        await server.ask(Code.AUTH_GET_ACL, subject="User:alice"),
        await server.ask(Code.AUTH_LIST_ACL),
    ):
        assert code == 1
        assert remark.startswith("this server has no accounts: set authenticationEnabled=true")


async def test_on_a_slave_what_the_masters_copy_brought_is_no_error() -> None:
    slave = Server(is_slave=True)
    create = Code.AUTH_CREATE_USER
    assert await slave.user(create, "alice", password="secret12") == OK
    assert await slave.user(create, "alice", password="other") == (16, "The user is existed")
    assert await slave.ask(Code.AUTH_DELETE_ACL, subject="User:alice") == OK
