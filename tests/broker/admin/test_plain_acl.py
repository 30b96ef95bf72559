"""A broker with aclEnable: the gate, the requests about accounts, and migration.

With the real clock, because the files are read in threads.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
import yaml

from trocket.auth.model import UserType
from trocket.auth.plain_acl_files import WATCH_INTERVAL_S
from trocket.common.config import ConfigError
from trocket.remoting import fastjson
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.signature import sign

from ...kit import Broker, broker_and_client, broker_client, embedded_broker, send_fields
from ...kit.client import Client
from ..group import group

SEND, CONFIG = 310, 26
UPDATE, DELETE, VERSION, WHITE, SHOW = range(50, 55)
ADMIN = ("admin-user", "admin-secret")
PLAIN = ("plain-user", "plain-secret")
NEW = ("new-user-1", "new-secret-1")
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
TOO_SHORT = (
    "The accessKey=short and secretKey=(hidden) cannot be null and length should longer than 6"
)
NO_PAIR = (
    "Parse Resource format error for .\nThe expected resource format is 'Res=Perm'. For example: "
    "topicA=SUB"
)

ACCOUNTS = {
    "accounts": [
        {"accessKey": ADMIN[0], "secretKey": ADMIN[1], "admin": True},
        {"accessKey": PLAIN[0], "secretKey": PLAIN[1], "topicPerms": ["T=PUB|SUB"]},
    ]
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plain_acl.yml").write_text(yaml.safe_dump(ACCOUNTS))
    return tmp_path


async def ask(
    client: Client,
    code: int,
    fields: Mapping[str, object] | None = None,
    account: tuple[str, str] | None = ADMIN,
    body: bytes = b"",
) -> RemotingCommand:
    texts = {name: str(value) for name, value in (fields or {}).items()}
    if account is not None:
        sign(texts, body, *account)
    return await client.ask(code, texts, body)


async def stored(client: Client) -> int:
    """How many messages the topic T has."""
    answer = await ask(client, 30, {"topic": "T", "queueId": 0})
    return int(answer.ext_fields["offset"])


def broker_in(folder: Path, **options: object):  # type: ignore[no-untyped-def]
    return embedded_broker(acl_enable=True, acl_config_path=str(folder), **options)


async def test_only_signed_requests_with_permissions_are_served(folder: Path) -> None:
    async with broker_in(folder) as broker:
        client = await broker.connect()
        for topic, account, remark in (
            ("T", PLAIN, None),
            ("T", ADMIN, None),
            ("U", PLAIN, "No default permission for topic:U"),
            ("T", None, "No accessKey is configured"),
            ("T", ("nobody-here", "a-secret"), "No acl config for nobody-here"),
            (
                "T",
                (PLAIN[0], "wrong-secret"),
                f"Check signature failed for accessKey={PLAIN[0]}",
            ),
        ):
            answer = await ask(client, SEND, send_fields(topic), account, b"x")
            assert answer.code == (0 if remark is None else 1)
            assert answer.remark == (None if remark is None else EXCEPTION + remark)
        assert await stored(client) == 2


async def test_refusals_and_changes_are_in_the_audit_log(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with broker_in(folder) as broker:
        client = await broker.connect()
        await ask(client, CONFIG, {}, PLAIN)
        await ask(client, UPDATE, {"accessKey": NEW[0], "secretKey": NEW[1]})
        await ask(client, DELETE, {"accessKey": "nobody-here"})
    assert "refused: GET_BROKER_CONFIG user=plain-user address=" in caplog.text
    assert "changed access control: the account new-user-1 is saved and in use" in caplog.text
    assert "administration: UPDATE_AND_CREATE_ACL_CONFIG user=admin-user" in caplog.text
    assert "outcome=failed code=210" in caplog.text
    assert not any(each[1] in caplog.text for each in (ADMIN, PLAIN, NEW))


async def test_many_requests_at_once_are_each_checked(folder: Path) -> None:
    """No run of the C extension serves what is not checked."""
    async with broker_in(folder) as broker:
        client = await broker.connect()
        await ask(client, SEND, send_fields("T"), PLAIN, b"x")
        frames = []
        for number in range(60):
            fields = {name: str(value) for name, value in send_fields("T").items()}
            if number % 3 == 0:
                sign(fields, b"x", *PLAIN)
            frames.append(RemotingCommand(SEND, fields, b"x"))
        await client.write(b"".join(client.session.request(each, None) for each in frames))
        codes = [(await client.answer(each.opaque)).code for each in frames]
        assert codes == [0 if number % 3 == 0 else 1 for number in range(60)]
        assert await stored(client) == 21


async def test_an_account_is_made_changed_and_removed(folder: Path) -> None:
    async with broker_in(folder) as broker:
        client = await broker.connect()
        new = {"accessKey": NEW[0], "secretKey": NEW[1], "topicPerms": "T=PUB,U=SUB"}
        answer = await ask(client, UPDATE, new)
        assert (answer.code, answer.remark) == (0, None)
        assert (await ask(client, SEND, send_fields("T"), NEW, b"x")).code == 0
        change = {"accessKey": NEW[0], "secretKey": "another-secret", "admin": "true"}
        assert (await ask(client, UPDATE, change)).code == 0
        assert (await ask(client, CONFIG, {}, (NEW[0], "another-secret"))).code == 0
        text = yaml.safe_load((folder / "plain_acl.yml").read_text())
        assert text["accounts"][-1] == {
            "accessKey": NEW[0],
            "secretKey": "another-secret",
            "topicPerms": ["T=PUB", "U=SUB"],
            "admin": True,
        }
        assert text["dataVersion"][0]["counter"] == 2
        assert (await ask(client, DELETE, {"accessKey": NEW[0]})).code == 0
        answer = await ask(client, SEND, send_fields("T"), NEW, b"x")
        assert answer.remark == f"{EXCEPTION}No acl config for {NEW[0]}"


@pytest.mark.parametrize(
    ("code", "fields", "failed", "remark"),
    [
        (
            UPDATE,
            {"accessKey": "short", "secretKey": "new-secret-1"},
            209,
            TOO_SHORT,
        ),
        (
            UPDATE,
            {"accessKey": NEW[0], "secretKey": NEW[1], "topicPerms": ""},
            209,
            NO_PAIR,
        ),
        (
            UPDATE,
            {"accessKey": NEW[0], "secretKey": NEW[1], "whiteRemoteAddress": "1.2.3.300-400"},
            209,
            "Netaddress examine scope Exception netaddress is 1.2.3.300-400",
        ),
        (
            DELETE,
            {"accessKey": NEW[0]},
            210,
            "The accesskey[new-user-1] corresponding to accessConfig has been deleted failed.",
        ),
        (
            DELETE,
            {},
            210,
            "The accesskey[null] corresponding to accessConfig has been deleted failed.",
        ),
        (WHITE, {}, 211, "The globalWhiteAddresses[null] has been updated failed."),
        (
            WHITE,
            {"globalWhiteAddrs": "10.0.0.*", "aclFileFullPath": "/etc/passwd"},
            211,
            "The globalWhiteAddresses[10.0.0.*] has been updated failed.",
        ),
        (
            WHITE,
            {"globalWhiteAddrs": "nonsense"},
            211,
            "Netaddress examine Exception netaddress is nonsense",
        ),
    ],
)
async def test_refused_changes_change_nothing(
    folder: Path, code: int, fields: dict[str, str], failed: int, remark: str
) -> None:
    before = (folder / "plain_acl.yml").read_bytes()
    async with broker_in(folder) as broker:
        client = await broker.connect()
        answer = await ask(client, code, fields)
        assert (answer.code, answer.remark) == (failed, remark)
        assert (folder / "plain_acl.yml").read_bytes() == before
        assert (await ask(client, CONFIG)).code == 0


async def test_only_administrators_see_and_change_accounts(folder: Path) -> None:
    async with broker_in(folder) as broker:
        client = await broker.connect()
        for code in range(UPDATE, SHOW + 1):
            answer = await ask(client, code, {"accessKey": NEW[0], "secretKey": NEW[1]}, PLAIN)
            refusal = f"Need admin permission for request code={code}, but accessKey={PLAIN[0]} is"
            assert answer.remark == f"{EXCEPTION}{refusal} not"


async def test_the_accounts_as_mqadmin_reads_them(folder: Path) -> None:
    async with broker_in(folder) as broker:
        client = await broker.connect()
        body = fastjson.loads((await ask(client, SHOW)).body)
        assert body == {
            "globalWhiteAddrs": [],
            "plainAccessConfigs": [
                {"accessKey": ADMIN[0], "secretKey": ADMIN[1], "admin": True},
                {
                    "accessKey": PLAIN[0],
                    "secretKey": PLAIN[1],
                    "admin": False,
                    "topicPerms": ["T=PUB|SUB"],
                },
            ],
        }
        assert (await ask(client, WHITE, {"globalWhiteAddrs": "10.0.0.*,10.1.1.1"})).code == 0
        body = fastjson.loads((await ask(client, SHOW)).body)
        assert body["globalWhiteAddrs"] == ["10.0.0.*", "10.1.1.1"]
        answer = await ask(client, VERSION)
        versions = fastjson.loads(answer.ext_fields["allAclFileVersion"].encode())
        path = str(folder / "plain_acl.yml")
        assert list(versions) == [path]
        assert versions[path]["counter"] == 1
        assert fastjson.loads(answer.ext_fields["version"].encode()) == versions[path]
        assert answer.ext_fields["clusterName"] == "DefaultCluster"
        assert answer.ext_fields["brokerName"] == "b"
        assert answer.ext_fields["brokerAddr"].startswith("127.0.0.1:")


async def test_white_addresses_may_have_braces(folder: Path) -> None:
    async with broker_in(folder) as broker:
        client = await broker.connect()
        texts = ["192.0.2.{1,2}", "192.0.2.7", "fe80::{1,a}"]
        assert (await ask(client, WHITE, {"globalWhiteAddrs": ",".join(texts)})).code == 0
        body = fastjson.loads((await ask(client, SHOW)).body)
        assert body["globalWhiteAddrs"] == texts
        answer = await ask(client, WHITE, {"globalWhiteAddrs": "192.0.2.{1,2"})
        assert answer.remark == "Netaddress examine Exception netaddress is 192.0.2.{1"
        assert (await ask(client, WHITE, {"globalWhiteAddrs": ""})).code == 0
        assert fastjson.loads((await ask(client, SHOW)).body)["globalWhiteAddrs"] == []


async def test_who_needs_no_signature_sees_no_secret(folder: Path) -> None:
    everyone = {**ACCOUNTS, "globalWhiteRemoteAddresses": ["*"]}
    (folder / "plain_acl.yml").write_text(yaml.safe_dump(everyone))
    async with broker_in(folder) as broker:
        client = await broker.connect()
        for account in (None, PLAIN, (ADMIN[0], "wrong-secret")):
            body = (await ask(client, SHOW, {}, account)).body
            assert b"(hidden)" in body
            assert b"-secret" not in body
        assert b"admin-secret" in (await ask(client, SHOW)).body


async def settled(broker: Broker, account: str) -> None:
    """Wait until the broker has taken a changed file, whose watch runs in real time."""
    assert broker.controller.parts.access.plain_acl is not None
    files = broker.controller.parts.access.plain_acl.files
    with trio.fail_after(20 * WATCH_INTERVAL_S):
        while account not in files.acl.accounts:
            await files.look()


@pytest.mark.slow
async def test_accounts_change_while_signed_sends_go_on(folder: Path) -> None:
    """100 changes of the file: no send of an account that stays is refused."""
    refused: list[str | None] = []
    sent = 0

    async def produce(broker: Broker, done: trio.Event) -> None:
        nonlocal sent
        client = await broker.connect()
        while not done.is_set():
            answer = await ask(client, SEND, send_fields("T"), PLAIN, b"x")
            sent += 1
            if answer.code:
                refused.append(answer.remark)

    async with broker_in(folder) as broker:
        done = trio.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(produce, broker, done)
            path = trio.Path(folder / "plain_acl.yml")
            for number in range(100):
                name = f"account-{number}"
                accounts = [*ACCOUNTS["accounts"], {"accessKey": name, "secretKey": "secret-1"}]
                text = yaml.safe_dump({"accounts": accounts})
                # As an editor that writes in place, in two pieces.
                await path.write_text(text[: len(text) // 2])
                await path.write_text(text)
                await settled(broker, name)
            done.set()
    assert refused == []
    assert sent >= 100


async def test_a_bad_file_keeps_the_accounts(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_in(folder) as broker:
        client = await broker.connect()
        (folder / "plain_acl.yml").write_text("accounts: [")
        assert broker.controller.parts.access.plain_acl is not None
        for _ in range(3):
            await broker.controller.parts.access.plain_acl.files.look()
        assert (await ask(client, SEND, send_fields("T"), PLAIN, b"x")).code == 0
        assert "The accounts stay as they were" in caplog.text


async def test_a_bad_file_stops_the_start(folder: Path) -> None:
    (folder / "plain_acl.yml").write_text("accounts: [")
    with pytest.RaisesGroup(ConfigError, flatten_subgroups=True):
        async with broker_in(folder):
            pass


async def test_without_acl_enable_the_requests_are_unknown() -> None:
    async with broker_client() as client:
        for code in range(UPDATE, SHOW + 1):
            assert (await client.ask(code, {})).code == 3


async def test_accounts_are_migrated_at_the_start(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    migrating = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "migrate_auth_from_v1_enabled": True,
        "acl_config_path": str(folder),
    }
    async with broker_and_client(**migrating) as (broker, client):
        accounts = broker.controller.parts.access.users.accounts
        assert accounts.users[ADMIN[0]].user_type is UserType.SUPER
        assert (await ask(client, SEND, send_fields("T"), PLAIN, b"x")).code == 0
        answer = await ask(client, SEND, send_fields("U"), PLAIN, b"x")
        assert answer.code == 16
        assert "User:plain-user has no permission to access Topic:U" in (answer.remark or "")
        assert (await ask(client, CONFIG)).code == 0
    assert "2 new users" in caplog.text
    assert not any(each[1] in caplog.text for each in (ADMIN, PLAIN))


@pytest.mark.slow
async def test_a_slave_signs_as_the_inner_client(folder: Path) -> None:
    inner = json.dumps({"accessKey": ADMIN[0], "secretKey": ADMIN[1]})
    options = {
        "acl_enable": True,
        "acl_config_path": str(folder),
        "inner_client_authentication_credentials": inner,
        "slave_sync_interval": 100,
    }
    async with group() as made:
        master = await made.master(**options)
        slave = await made.slave(**options)
        client = await master.connect()
        assert (await ask(client, SEND, send_fields("T"), PLAIN, b"x")).code == 0
        with trio.fail_after(10):
            while "T" not in slave.running.topics.topic_config_table:  # noqa: ASYNC110 - its round
                await trio.sleep(0.05)
