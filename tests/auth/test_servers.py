"""Whole servers with accounts: nothing gets past the gate, and their own requests pass it."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from trocket.auth.accounts import ACCOUNTS_FILE
from trocket.auth.model import User, UserStatus, UserType
from trocket.broker.settings.config import BrokerConfig
from trocket.broker.settings.config_checks import read_broker_config
from trocket.client import Credentials, Message, Producer
from trocket.common.clock import ManualClock
from trocket.common.config import ConfigError, parse_properties
from trocket.common.process import print_configuration
from trocket.disk.errors import CorruptRecordError
from trocket.disk.memory_disk import MemoryDisk
from trocket.namesrv.config import NamesrvConfig, read_namesrv_config
from trocket.namesrv.controller import NamesrvController
from trocket.native import extension
from trocket.remoting.codec import ONEWAY_FLAG, RESPONSE_FLAG, encode
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.store.config import MessageStoreConfig
from trocket.testing.memory_broker import MemoryBroker

from ..broker.group import group
from ..kit import (
    broker_and_client,
    broker_client,
    embedded_broker,
    pull_fields,
    send_fields,
    topic_fields,
)
from ..kit.client import Client
from .signed import ALICE, INIT_USER, ROOT, allow, signed

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
INNER = json.dumps({"accessKey": "inner", "secretKey": "secret-of-inner"})
ACCESS = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": INIT_USER,
    "inner_client_authentication_credentials": INNER,
}
NO_NAME = "username cannot be null."


def accounts_of(broker):
    return broker.controller.parts.access.users.accounts


def burst(code, fields, count, serialize_type, *, flag=0, user=None):
    """Frames of one burst, with opaques from 1 on."""
    frames = []
    for number in range(count):
        request = signed(code, fields, b"body", user=user, serialize_type=serialize_type)
        request.opaque, request.flag = number + 1, flag
        frames.append(encode(request))
    return b"".join(frames)


@pytest.mark.parametrize("native", [extension, None])
@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_no_run_of_unsigned_sends_is_served(native, serialize_type):
    async with broker_and_client(native=native, **ACCESS) as (broker, client):
        await client.send(signed(SEND, send_fields(), b"body"))  # makes topic and queue known
        await client.write(burst(SEND, send_fields(), 50, serialize_type))
        for opaque in range(1, 51):
            answer = await client.answer(opaque)
            if opaque > 1:  # the first is the signed one's
                assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, NO_NAME)
        assert broker.controller.store.max_offset("T", 0) == 1


@pytest.mark.skipif(extension is None, reason="there are no runs")
async def test_without_accounts_such_a_burst_is_a_run():
    async with broker_and_client() as (broker, client):
        await client.send(signed(SEND, send_fields(), b"body", user=None))
        await client.write(burst(SEND, send_fields(), 50, 1))
        for opaque in range(2, 51):
            assert (await client.answer(opaque)).code == 0
        assert broker.controller.server.processors.keys()
        assert broker.controller.store.max_offset("T", 0) == 51


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_no_burst_of_unsigned_pulls_is_served_or_held(serialize_type):
    async with broker_and_client(**ACCESS) as (broker, client):
        await client.ask(SEND, signed(SEND, send_fields(), b"secret").ext_fields, b"secret")
        opaque = await client.send(signed(PULL, pull_fields()))
        assert (await client.answer(opaque)).code == 0
        await client.write(burst(PULL, pull_fields(queueOffset=0), 40, serialize_type))
        await client.write(burst(PULL, pull_fields(queueOffset=1), 40, serialize_type))
        refused = 0
        while refused < 78:  # two have the opaques of the first requests
            client.receive_data(await client.read())
            refused += len([client.taken(each.opaque) for each in client.unasked])
        assert not broker.controller.pulls.hold_service.count


async def test_an_unsigned_oneway_send_is_not_stored_and_not_answered():
    async with broker_and_client(**ACCESS) as (broker, client):
        await client.write(burst(SEND, send_fields(), 20, 1, flag=ONEWAY_FLAG))
        answer = await client.ask(SEND, signed(SEND, send_fields(), b"x").ext_fields, b"x")
        assert answer.code == 0
        assert broker.controller.store.max_offset("T", 0) == 1
        assert client.unasked == []


async def test_a_request_that_says_it_is_a_response_is_not_served():
    async with broker_and_client(**ACCESS) as (broker, client):
        await client.write(burst(SEND, send_fields(), 20, 1, flag=RESPONSE_FLAG))
        await client.write(burst(SEND, send_fields(), 20, 1, flag=RESPONSE_FLAG, user=ROOT))
        await client.ask(SEND, signed(SEND, send_fields(), b"x").ext_fields, b"x")
        assert broker.controller.store.max_offset("T", 0) == 1


async def test_a_code_that_is_not_served_needs_no_name():
    async with broker_client(**ACCESS) as client:
        answer = await client.ask(RequestCode.POP_MESSAGE + 9_000, {})
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_of_a_field_that_is_sent_twice_the_signed_value_is_the_used_one():
    async with broker_and_client(**ACCESS) as (broker, client):
        frame = encode(signed(SEND, send_fields("T"), b"x", serialize_type=0))
        for text in (b'"b":"mine","b":"T"', b'"b":"T","b":"mine"'):
            header = frame[8:].replace(b'"b":"T"', text)
            size = len(header) - len(b"x")
            client.session.expect(0, int(SEND), None)
            await client.write(
                (len(header) + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + header
            )
            answer = await client.answer(0)
            used = "T" if text.endswith(b'"T"') else "mine"
            assert answer.code == (0 if used == "T" else ResponseCode.NO_PERMISSION)
        store = broker.controller.store
        assert (store.max_offset("T", 0), store.max_offset("mine", 0)) == (1, 0)


async def test_many_and_long_fields_without_a_signature_are_refused():
    async with broker_client(**ACCESS) as client:
        fields = {f"x{number:03d}{'y' * 500}": "z" * 400 for number in range(200)}
        fields |= {"AccessKey": "root", "Signature": "s" * 28}
        answer = await client.ask(SEND, fields | send_fields(), b"x")
        assert answer.remark == "check signature failed."


async def test_the_vip_port_has_the_same_gate(tmp_path):
    from trocket.broker.controller import BrokerController
    from trocket.common.clock import SystemClock

    config = BrokerConfig(
        broker_name="b", broker_ip1="127.0.0.1", bind_address="127.0.0.1", listen_port=0, **ACCESS
    )
    store = MessageStoreConfig(
        store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=1 << 18,
        max_hash_slot_num=1, max_index_num=1,
    )  # fmt: skip
    broker = BrokerController(config, store, clock=SystemClock(), disk=MemoryDisk())
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        assert len(broker.listen_addresses) == 2
        for address in broker.listen_addresses:
            host, _, port = address.rpartition(":")
            stream = await trio.open_tcp_stream(host, int(port))
            client = Client(stream)
            answer = await client.ask(SEND, send_fields(), b"x")
            assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, NO_NAME)
            await stream.aclose()
        nursery.cancel_scope.cancel()


async def test_a_change_of_rights_counts_from_the_next_request_on():
    async with broker_and_client(**ACCESS) as (broker, client):
        accounts = accounts_of(broker)

        async def outcome(user=ALICE):
            opaque = await client.send(signed(SEND, send_fields(), b"x", user=user))
            return (await client.answer(opaque)).remark

        allow(accounts, ["Topic:T Pub"])
        assert await outcome() is None
        allow(accounts, ["Topic:T Sub"])
        assert (await outcome()).endswith("no matched policies.")
        allow(accounts, ["Topic:T Pub"])
        assert await outcome() is None
        accounts.update_user("alice", password="new-secret")
        assert await outcome() == "check signature failed."
        assert await outcome(User("alice", "new-secret")) is None
        accounts.update_user("alice", user_status=UserStatus.DISABLE)
        assert await outcome(User("alice", "new-secret")) == "User:alice is disabled."
        accounts.delete_user("alice")
        assert await outcome() == "User:alice is not found."


def disabled(accounts):
    accounts.update_user("alice", user_status=UserStatus.DISABLE)


def deleted(accounts):
    accounts.delete_user("alice")


def given_another_password(accounts):
    accounts.update_user("alice", password="secret-of-nobody")


def denied(accounts):
    allow(accounts, ["Topic:other Sub", "Group:CG Sub"])


WAITING = {
    PULL: {"queueOffset": 0},
    RequestCode.POP_MESSAGE: {
        "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000, "pollTime": 20_000,
        "bornTime": 0, "initMode": 0,
    },
    RequestCode.NOTIFICATION: {"queueId": -1, "pollTime": 20_000, "bornTime": 0},
}  # fmt: skip
"""Requests that wait for a message, with their fields."""


@pytest.mark.slow
@pytest.mark.parametrize("change", [disabled, deleted, given_another_password, denied])
@pytest.mark.parametrize("code", WAITING)
async def test_what_waits_gets_nothing_once_its_user_has_lost_the_right(code, change):
    async with broker_and_client(**ACCESS) as (broker, client):
        accounts = accounts_of(broker)
        allow(accounts, ["Topic:T Sub", "Group:CG Sub"])
        created = RequestCode.UPDATE_AND_CREATE_TOPIC
        fields = topic_fields("T", 4)
        assert (await client.ask(created, signed(created, fields).ext_fields)).code == 0
        waiting = pull_fields(**WAITING[code]) if code == PULL else WAITING[code]
        asked = {"topic": "T", "consumerGroup": "CG", **waiting}
        held = await client.send(signed(code, asked, user=ALICE))
        await client.answer(await client.send(signed(RequestCode.GET_BROKER_RUNTIME_INFO)))
        change(accounts)
        await client.ask(SEND, signed(SEND, send_fields(), b"secret").ext_fields, b"secret")
        answer = await client.answer(held)
        assert answer.code == ResponseCode.NO_PERMISSION, answer
        assert b"secret" not in (answer.body or b"")


@pytest.mark.parametrize("code", WAITING)
async def test_what_waits_is_answered_after_a_change_of_other_accounts(code):
    async with broker_and_client(**ACCESS) as (broker, client):
        accounts = accounts_of(broker)
        allow(accounts, ["Topic:T Sub", "Group:CG Sub"])
        await client.ask(SEND, signed(SEND, send_fields(), b"x").ext_fields, b"x")
        waiting = pull_fields(queueOffset=1) if code == PULL else WAITING[code]
        if code != PULL:
            pop = {"topic": "T", "consumerGroup": "CG", **WAITING[RequestCode.POP_MESSAGE]}
            first = await client.send(signed(RequestCode.POP_MESSAGE, pop, user=ALICE))
            assert (await client.answer(first)).code == 0
        asked = {"topic": "T", "consumerGroup": "CG", **waiting}
        held = await client.send(signed(code, asked, user=ALICE))
        await client.answer(await client.send(signed(RequestCode.GET_BROKER_RUNTIME_INFO)))
        accounts.create_user(User("bob", "secret-of-bob"))
        await client.ask(SEND, signed(SEND, send_fields(), b"y").ext_fields, b"y")
        assert (await client.answer(held)).code == 0


async def test_a_change_of_the_password_ends_the_checks_of_transactions(autojump_clock):
    async with embedded_broker(**ACCESS) as broker:
        allow(accounts_of(broker), ["Topic:T Pub"])
        spy, producer = await broker.connect(), await broker.connect()
        beat = b'{"clientID":"spy","producerDataSet":[{"groupName":"PG"}]}'
        half = send_fields(f=4, i=f"{send_fields()['i']}TRAN_MSG\x01true\x02PGROUP\x01PG\x02")
        for client, request in (
            (spy, signed(RequestCode.HEART_BEAT, {}, beat, user=ALICE)),
            (producer, signed(SEND, half, b"secret")),
        ):
            assert (await client.answer(await client.send(request))).code == 0
        given_another_password(accounts_of(broker))
        await trio.sleep(60)
        await spy.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {})
        assert spy.pushed == []


async def test_a_retry_topic_is_that_of_the_group_that_exists_whatever_group_is_named():
    async with embedded_broker(**ACCESS) as broker:
        allow(accounts_of(broker), ["Topic:billing Sub", "Group:team Sub"])
        client = await broker.connect()
        retry = "%RETRY%team_billing"
        requests = [
            signed(PULL, pull_fields(retry, consumerGroup="team"), user=ALICE),
            signed(SEND, send_fields(retry, a="team"), b"x", user=ALICE),
        ]
        codes = [(await client.answer(await client.send(each))).code for each in requests]
        assert ResponseCode.NO_PERMISSION not in codes
        created = broker.controller.parts.tables.groups.find("team_billing")
        assert created is not None
        for request in requests:
            answer = await client.answer(await client.send(request))
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "Group:team_billing" in answer.remark


async def test_a_pop_reads_no_retry_topic_of_a_group_with_another_name():
    async with embedded_broker(**ACCESS) as broker:
        allow(accounts_of(broker), ["Topic:billing Sub", "Group:team Sub"])
        client = await broker.connect()
        beat = b'{"clientID":"c","consumerDataSet":[{"groupName":"team_billing"}]}'
        code = RequestCode.HEART_BEAT
        assert (await client.ask(code, signed(code, {}, beat).ext_fields, beat)).code == 0
        for topic in ("billing", "%RETRY%team_billing"):
            body = topic.encode()
            fields = send_fields(topic, a="team_billing")
            answer = await client.ask(SEND, signed(SEND, fields, body).ext_fields, body)
            assert answer.code == 0, answer.remark
        pop = {
            "topic": "billing", "consumerGroup": "team", "queueId": -1, "maxMsgNums": 32,
            "invisibleTime": 60_000, "pollTime": 0, "bornTime": 0, "initMode": 0,
        }  # fmt: skip
        assert broker.controller.parts.tables.groups.find("team_billing") is not None
        broker.controller.config.pop_from_retry_probability = 100
        bodies = set()
        for _ in range(20):
            request = signed(RequestCode.POP_MESSAGE, pop, user=ALICE)
            answer = await client.answer(await client.send(request))
            bodies |= {each.body for each in decode_messages(answer.body or b"")}
        assert bodies == {b"billing"}


async def test_codes_in_both_whitelists_are_open_and_no_other():
    lists = {"authentication_whitelist": "28, 310", "authorization_whitelist": "28,26"}
    async with broker_and_client(**ACCESS, **lists) as (broker, client):
        assert (await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {})).code == 0
        # Users' rights are checked for sends, so the name must be proved.
        assert (await client.ask(SEND, {**send_fields(), "AccessKey": "root"})).code == 16
        allow(accounts_of(broker), [])
        opaque = await client.send(signed(RequestCode.GET_BROKER_CONFIG, user=ALICE))
        assert (await client.answer(opaque)).code == 0
        assert (await client.ask(RequestCode.GET_BROKER_CONFIG, {})).remark == NO_NAME


async def test_with_authentication_alone_every_user_may_do_everything():
    keys = {"authentication_enabled": True, "init_authentication_user": INIT_USER}
    async with broker_and_client(**keys) as (broker, client):
        allow(accounts_of(broker), [])
        opaque = await client.send(signed(SEND, send_fields(), b"x", user=ALICE))
        assert (await client.answer(opaque)).code == 0
        assert (await client.ask(SEND, send_fields(), b"x")).remark == NO_NAME


async def test_secrets_are_hidden_in_the_configuration():
    async with broker_and_client(**ACCESS) as (broker, client):
        opaque = await client.send(signed(RequestCode.GET_BROKER_CONFIG))
        text = (await client.answer(opaque)).body.decode()
        assert "initAuthenticationUser=(hidden)" in text
        assert "innerClientAuthenticationCredentials=(hidden)" in text
        assert "secret-of" not in text
        change = signed(RequestCode.UPDATE_BROKER_CONFIG, body=b"authenticationEnabled=false")
        opaque = await client.send(change)
        assert "no request may change it" in ((await client.answer(opaque)).remark or "")
    assert "secret-of" not in repr(broker.controller.config)


# The start.


def broker_config(text):
    return read_broker_config(parse_properties(text), BrokerConfig(), MessageStoreConfig())


def namesrv_config(text):
    return read_namesrv_config(parse_properties(text), NamesrvConfig())


@pytest.mark.parametrize("read", [broker_config, namesrv_config])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("authorizationEnabled=true", "authorizationEnabled=true needs authenticationEnabled=true"),
        ("initAuthenticationUser=hush", "initAuthenticationUser: its value is not JSON"),
        ('initAuthenticationUser={"username":"hush"}', "must have the form"),
        ('innerClientAuthenticationCredentials={"accessKey":"","secretKey":"hush"}', "form"),
        ("authenticationWhitelist=105,route", "'route' is not a request code"),
        ("authenticationProvider=com.example.Own", "'com.example.Own' is not there"),
    ],
)
def test_what_cannot_protect_is_refused_at_the_start(read, text, reason):
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert reason in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("read", [broker_config, namesrv_config])
def test_the_keys_of_a_file_for_apache_are_accepted(read):
    package = "org.apache.rocketmq.auth.authentication"
    read(
        f"""authenticationEnabled = true
        authenticationProvider = {package}.provider.DefaultAuthenticationProvider
        authenticationMetadataProvider = {package}.provider.LocalAuthenticationMetadataProvider
        authenticationStrategy = {package}.strategy.StatelessAuthenticationStrategy
        initAuthenticationUser = {{"username":"rocketmq","password":"12345678"}}
        innerClientAuthenticationCredentials = {{"accessKey":"rocketmq","secretKey":"12345678"}}
        authorizationEnabled = true
        authorizationWhitelist = 105, apache.rocketmq.v2.MessagingService/QueryRoute
        """
    )


def test_filter_servers_of_a_guarded_broker_need_an_account():
    text = f"authenticationEnabled=true\ninitAuthenticationUser={INIT_USER}\nfilterServerNums=1"
    with pytest.raises(ConfigError, match="needs innerClientAuthenticationCredentials"):
        broker_config(text)
    broker_config(f"{text}\ninnerClientAuthenticationCredentials={INNER}")


async def test_the_first_super_user_is_created_once():
    disk = MemoryDisk()
    async with embedded_broker(disk, **ACCESS) as broker:
        accounts = accounts_of(broker)
        assert {name: user.is_super for name, user in accounts.users.items()} == {
            "root": True,
            "inner": True,
        }
        accounts.update_user("root", password="changed")
    assert f"/store/config/{ACCOUNTS_FILE}" in disk.contents
    async with embedded_broker(disk, **ACCESS) as broker:
        assert accounts_of(broker).users["root"].password == "changed"


async def test_the_log_says_where_a_user_is_not_as_the_configuration_has_it(caplog):
    disk = MemoryDisk()
    async with embedded_broker(disk, **ACCESS) as broker:
        accounts = accounts_of(broker)
        accounts.update_user("root", password="changed-1")
    async with embedded_broker(disk, **ACCESS) as broker:
        assert "the user" not in caplog.text
        accounts = accounts_of(broker)
        accounts.update_user("root", user_status=UserStatus.DISABLE)
        accounts.update_user("inner", password="changed-2", user_type=UserType.NORMAL)
    async with embedded_broker(disk, **ACCESS):
        assert "the user root of initAuthenticationUser is disabled, and" in caplog.text
        assert (
            "the user inner of innerClientAuthenticationCredentials is not a super user and has "
            "another password, and this server's own requests may be refused" in caplog.text
        )
    assert "changed-" not in caplog.text


async def test_a_damaged_file_of_accounts_stops_the_start():
    disk = MemoryDisk()
    disk.contents[f"/store/config/{ACCOUNTS_FILE}"] = bytearray(b'{"users":[')
    with pytest.RaisesGroup(CorruptRecordError, flatten_subgroups=True):
        async with embedded_broker(disk, **ACCESS):
            pass
    disk = MemoryDisk()
    disk.contents[f"/n/{ACCOUNTS_FILE}"] = bytearray(b"")
    config = NamesrvConfig(kv_config_path="/n/kv.json", config_store_path="/n/n.conf", **ACCESS)
    namesrv = NamesrvController(config, clock=ManualClock(), disk=disk, listeners=[])
    with pytest.raises(CorruptRecordError, match=ACCOUNTS_FILE):
        await namesrv.run()


async def test_without_any_user_the_log_says_why_nobody_gets_in(caplog):
    async with broker_client(authentication_enabled=True) as client:
        assert (await client.ask(SEND, send_fields())).code == ResponseCode.NO_PERMISSION
    assert "set initAuthenticationUser" in caplog.text


# Servers among each other.


async def route_of(made, topic):
    client = Client(await made.open_stream("192.0.2.1", 9876))
    opaque = await client.send(signed(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))
    return await client.answer(opaque)


@pytest.mark.slow
async def test_a_guarded_group_replicates_and_registers(autojump_clock):
    async with group(**ACCESS) as made:
        master = await made.master(**ACCESS)
        slave = await made.slave(**ACCESS)
        client = await master.connect()
        for number in range(20):
            opaque = await client.send(signed(SEND, send_fields(), b"%d" % number))
            assert (await client.answer(opaque)).code == 0
        await made.has_log(slave, master)
        answer = await route_of(made, "TBW102")
        assert answer.code == 0
        assert b"192.0.2.1:10911" in answer.body
        assert b"192.0.2.1:11011" in answer.body
        await trio.sleep(60)  # virtual: six synchronisations of tables
        assert "T" in slave.running.topics.topic_config_table


async def test_a_broker_that_does_not_sign_is_not_registered(autojump_clock):
    async with group(**ACCESS) as made:
        await made.master()
        answer = await route_of(made, "TBW102")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_an_embedded_broker_may_have_accounts(autojump_clock):
    config = {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "initAuthenticationUser": INIT_USER,
        "innerClientAuthenticationCredentials": INNER,
    }
    async with MemoryBroker(config=config, namesrv_config=config) as broker:
        await broker.create_topic("orders", queues=1)
        root = Credentials("root", "secret-of-root")
        async with Producer(broker.url, dial=broker.dial, credentials=root) as producer:
            await producer.send(Message("orders", b"hello"))
        assert [each.body for each in await broker.messages("orders")] == [b"hello"]


async def test_an_embedded_broker_may_have_accounts_of_acl_1(autojump_clock, tmp_path):
    (tmp_path / "plain_acl.yml").write_text(
        "accounts:\n"
        "- {accessKey: administrator, secretKey: secret-of-root, admin: true}\n"
        "- {accessKey: producer, secretKey: secret-of-one, topicPerms: [orders=PUB]}\n"
    )
    config = {"aclEnable": True, "aclConfigPath": str(tmp_path)}
    async with MemoryBroker(config=config) as broker:
        await broker.create_topic("orders", queues=1)
        keys = Credentials("producer", "secret-of-one")
        async with Producer(broker.url, dial=broker.dial, credentials=keys) as producer:
            await producer.send(Message("orders", b"hello"))
        assert [each.body for each in await broker.messages("orders")] == [b"hello"]


def test_the_printed_configuration_has_no_secret(capsys):
    print_configuration([BrokerConfig(**ACCESS)])
    printed = capsys.readouterr().out
    assert "# initAuthenticationUser is set, and secret" in printed
    assert "secret-of" not in printed
    printed_again, _, _ = broker_config(printed)
    assert printed_again.authorization_enabled
