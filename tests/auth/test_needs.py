"""What requests need, where the header or the body names more than one thing."""

from __future__ import annotations

import pytest
import trio.testing

from trocket.auth.access_control import UNREADABLE, AccessControl
from trocket.auth.accounts import Accounts
from trocket.auth.decisions import DECISION_SIZE_MAX, DECISIONS_MAX
from trocket.auth.model import Acl, Policy, PolicyType
from trocket.auth.need_tables import NEEDS_OF_BROKER, NEEDS_OF_NAMESRV
from trocket.auth.needs import Places
from trocket.auth.rules import Rules
from trocket.broker.messages.stored_topic import topic_of_message
from trocket.disk.errors import StoreIOError
from trocket.remoting.errors import RequestRefused
from trocket.remoting.request_codes import RequestCode as Code

from ..kit import broker_and_client, embedded_broker, pull_fields, put_record, send_fields
from .signed import ALICE, INIT_USER, ROOT, allow, rule, signed

PLACES = Places("c", has_group=lambda group: False)


def contexts(code, fields=None, body=b"", *, needs=NEEDS_OF_BROKER, places=PLACES):
    request = signed(code, fields, body)
    return [
        f"{resource} {'|'.join(action.value for action in actions)}"
        for part in needs[code]
        for resource, actions in part.contexts(request, places)
    ]


@pytest.mark.parametrize(
    ("group", "topic", "needed"),
    [
        ("G", "T", ["Topic:T Sub", "Group:G Sub"]),
        ("G", "%RETRY%G", ["Group:G Sub", "Group:G Sub"]),
        # RocketMQ asks for the request's group alone: everyone could read a group's retries.
        ("G", "%RETRY%victim", ["Group:victim Sub", "Group:G Sub"]),
        # Pop consumers' retry topics, of both versions.
        ("G", "%RETRY%G+T", ["Group:G Sub", "Topic:T Sub", "Group:G Sub"]),
        ("G", "%RETRY%G_T", ["Group:G Sub", "Topic:T Sub", "Group:G Sub"]),
        ("G", "%RETRY%G_T_1", ["Group:G Sub", "Topic:T_1 Sub", "Group:G Sub"]),
        ("G", "%RETRY%other+T", ["Group:other Sub", "Topic:T Sub", "Group:G Sub"]),
        ("G", "%RETRY%other_T", ["Group:other_T Sub", "Group:G Sub"]),
        ("", "%RETRY%G", ["Group:G Sub", "Group: Sub"]),
    ],
)
def test_a_pull_needs_the_topic_and_the_group(group, topic, needed) -> None:
    fields = {"consumerGroup": group, "topic": topic}
    for code in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE):
        assert contexts(code, fields) == needed
    for code in (Code.POP_MESSAGE, Code.ACK_MESSAGE):
        # The group first, as the requests have it.
        assert contexts(code, fields) == [needed[-1], *needed[:-1]]


TWO = ("Group:team", "Topic:a_billing", "Group:team_a", "Topic:billing")
KNOWN = {"team", "team_billing", "team_a", "a", "a_b"}
SHARED = Places("c", has_group=KNOWN.__contains__, has_topic={"billing", "a_billing"}.__contains__)


@pytest.mark.parametrize(
    ("group", "topic", "needed"),
    [
        # It is the retry topic of the group team_billing, which exists.
        ("team", "team_billing", ["Group:team", "Topic:billing", "Group:team_billing"]),
        ("team_billing", "team_billing", ["Group:team_billing"]),
        ("", "team_billing", ["Group:team_billing"]),
        # No such group, so it has what each of two groups did not acknowledge.
        ("team", "team_a_billing", [*TWO]),
        ("", "team_a_billing", [
            "Group:team_a_billing", *TWO,
        ]),
        # A right to all topics that begin with "b" is none to the topic c of the group a_b.
        ("a", "a_b+c", ["Group:a_b", "Topic:c"]),
        ("team", "team_other", ["Group:team", "Topic:other"]),
    ],
)  # fmt: skip
def test_a_retry_topic_of_several_owners_needs_the_rights_of_each(group, topic, needed) -> None:
    fields = {
        "a": group,
        "b": "%RETRY%" + topic,
        "consumerGroup": group,
        "topic": "%RETRY%" + topic,
    }
    expected = [f"{resource} Sub" for resource in needed]
    assert contexts(Code.SEND_MESSAGE_V2, fields, places=SHARED) == expected
    pulled = contexts(Code.PULL_MESSAGE, fields, places=SHARED)
    assert pulled == [*expected, f"Group:{group} Sub"]
    body = b'{"acks":[{"c":"%b","t":"%%RETRY%%%b"}]}' % (group.encode(), topic.encode())
    acked = contexts(Code.BATCH_ACK_MESSAGE, body=body, places=SHARED)
    assert acked == [f"Group:{group} Sub", *expected]


@pytest.mark.parametrize("code", [Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE])
def test_a_send_to_a_retry_topic_needs_its_group(code) -> None:
    assert contexts(code, {"a": "PG", "b": "T"}) == ["Topic:T Pub"]
    assert contexts(code, {"a": "CLIENT_INNER_PRODUCER", "b": "%RETRY%G"}) == ["Group:G Sub"]
    # RocketMQ takes the producer's group, which the sender chooses.
    assert contexts(code, {"a": "mine", "b": "%RETRY%victim"}) == ["Group:victim Sub"]
    assert contexts(code, {"a": "G", "b": "%RETRY%G+T"}) == ["Group:G Sub", "Topic:T Sub"]


def test_a_route_of_a_retry_topic_needs_its_group() -> None:
    route = Code.GET_ROUTEINFO_BY_TOPIC
    assert contexts(route, {"topic": "%RETRY%G"}, needs=NEEDS_OF_NAMESRV) == ["Group:G Sub|Get"]


def test_fields_that_may_be_missing() -> None:
    assert contexts(Code.GET_CONSUME_STATS, {"consumerGroup": "G"}) == ["Group:G Get"]
    fields = {"consumerGroup": "G", "topicList": "T1;;T2; ;%RETRY%G"}
    assert contexts(Code.GET_CONSUME_STATS, fields) == [
        "Group:G Get", "Topic:T1 Get", "Topic:T2 Get", "Group:G Get",
    ]  # fmt: skip
    assert contexts(Code.UNREGISTER_CLIENT, {"clientID": "c"}) == []
    assert contexts(Code.SEND_MESSAGE_V2) == ["Topic: Pub"]


def test_the_topic_of_a_stored_message_counts_not_the_requests_word() -> None:
    places = Places("c", {7: "theirs", 8: "%RETRY%G"}.get)
    view = Code.VIEW_MESSAGE_BY_ID
    assert contexts(view, {"offset": 7, "topic": "mine"}, places=places) == [
        "Topic:mine Get", "Topic:theirs Get",
    ]  # fmt: skip
    assert contexts(view, {"offset": "7.0"}, places=places) == ["Topic:theirs Get"]
    assert contexts(view, {"offset": 8}, places=places) == ["Group:G Get"]
    with pytest.raises(RequestRefused, match="can not find message by the offset, 9"):
        contexts(view, {"offset": 9}, places=places)
    back = {"offset": 7, "group": "G", "delayLevel": 0}
    assert contexts(Code.CONSUMER_SEND_MSG_BACK, back, places=places) == [
        "Group:G Sub", "Topic:theirs Sub",
    ]  # fmt: skip


def test_bodies_of_pop_requests() -> None:
    acks = b'{"acks":[{"c":"G","t":"T"},{"consumerGroup":"G2","topic":"T2"}]}'
    assert contexts(Code.BATCH_ACK_MESSAGE, body=acks) == [
        "Group:G Sub", "Topic:T Sub", "Group:G2 Sub", "Topic:T2 Sub",
    ]  # fmt: skip
    # With both names the long one counts, as it does for the processor.
    both = b'{"acks":[{"c":"mine","consumerGroup":"G","topic":"T","t":"mine"}]}'
    assert contexts(Code.BATCH_ACK_MESSAGE, body=both) == ["Group:G Sub", "Topic:T Sub"]
    assert contexts(Code.BATCH_ACK_MESSAGE, body=b"{}") == []
    body = b'{"topic":"T","consumerGroup":"G"}'
    assert contexts(Code.QUERY_ASSIGNMENT, body=body) == ["Group:G Sub", "Topic:T Sub"]
    mode = contexts(Code.SET_MESSAGE_REQUEST_MODE, body=body)
    assert mode == ["Group:G Update", "Topic:T Update"]


# The check as a whole.


class FakeChannel:
    """All that the check uses of a channel."""

    def __init__(self, address: str = "192.0.2.1:50000") -> None:
        self.remote_address = address
        self.attributes = {}
        self.remote_host = bytes(map(int, address.partition(":")[0].split("."))) + bytes(4)


@pytest.fixture
def accounts():
    table = Accounts()
    table.create_user(ALICE)
    return table


def control_of(accounts):
    return AccessControl(accounts, NEEDS_OF_BROKER, Rules(authorizes=True), PLACES)


def refusal(control, request, peer=None):
    try:
        control.check(request, peer or FakeChannel())
    except RequestRefused as refused:
        return refused.remark
    return None


@pytest.mark.parametrize(
    "code",
    [
        Code.HEART_BEAT,
        Code.LOCK_BATCH_MQ,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.CHECK_CLIENT_CONFIG,
        Code.BATCH_ACK_MESSAGE,
    ],
)
@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff\xfe", b'{"consumerDataSet":7}'[:-1]])
def test_what_cannot_be_read_is_refused(accounts, code, body) -> None:
    allow(accounts, ["* All"])
    assert refusal(control_of(accounts), signed(code, {}, body, user=ALICE)) == UNREADABLE


def test_an_address_is_part_of_a_decision(accounts) -> None:
    entry = rule("Topic:T", source_ips=("192.0.2.0/24",))
    accounts.put_acl(Acl(ALICE.subject, (Policy(PolicyType.CUSTOM, (entry,)),)))
    control, request = control_of(accounts), signed(Code.SEND_MESSAGE_V2, {"b": "T"}, user=ALICE)
    for _ in range(2):
        assert refusal(control, request) is None
        assert refusal(control, request, FakeChannel("198.51.100.1:50000")) == (
            "User:alice has no permission to access Topic:T from 198.51.100.1, no matched policies."
        )


@pytest.mark.slow
def test_the_cache_of_decisions_is_bounded(accounts) -> None:
    allow(accounts, ["Topic:* Pub"])
    control = control_of(accounts)
    for number in range(DECISIONS_MAX + 50):
        request = signed(Code.SEND_MESSAGE_V2, {"b": f"T{number}"}, user=ALICE)
        assert refusal(control, request) is None
    assert control.decision_count <= DECISIONS_MAX
    before = control.decision_count
    long = signed(Code.SEND_MESSAGE_V2, {"b": "T" * DECISION_SIZE_MAX}, user=ALICE)
    assert refusal(control, long) is None
    assert control.decision_count == before


def test_a_refusal_repeats_a_long_name_only_in_part(accounts) -> None:
    long = signed(Code.SEND_MESSAGE_V2, {"b": "T" * 30_000}, user=ALICE)
    assert len(refusal(control_of(accounts), long)) < 1_000


# With a broker's messages.


async def test_nobody_reads_messages_by_offset_without_a_right_to_their_topic() -> None:
    keys = {"authentication_enabled": True, "authorization_enabled": True}
    async with embedded_broker(**keys, init_authentication_user=INIT_USER) as broker:
        put_record(broker, "theirs", "", b"secret")
        accounts = broker.controller.parts.access.users.accounts
        allow(accounts, ["Topic:mine All", "Group:G All"])
        client = await broker.connect()

        async def remark(code, fields):
            opaque = await client.send(signed(code, fields, user=ALICE))
            return (await client.answer(opaque)).remark or ""

        pull = pull_fields(topic="%RETRY%victim", consumerGroup="G")
        assert "Group:victim" in await remark(Code.PULL_MESSAGE, pull)


def message_id(offset: int) -> str:
    return f"7F00000100002A9F{offset:016X}"


@pytest.mark.parametrize(
    ("code", "field", "more"),
    [
        (Code.VIEW_MESSAGE_BY_ID, "offset", {}),
        (Code.VIEW_MESSAGE_BY_ID, "offset", {"topic": "mine"}),
        (Code.CONSUMER_SEND_MSG_BACK, "offset", {"group": "G", "delayLevel": 1}),
        (Code.END_TRANSACTION, "commitLogOffset", {
            "producerGroup": "G", "tranStateTableOffset": 0, "commitOrRollback": 8,
            "fromTransactionCheck": "false", "msgId": "x",
        }),
        (Code.RESUME_CHECK_HALF_MESSAGE, "msgId", {}),
        (Code.CONSUME_MESSAGE_DIRECTLY, "msgId", {"consumerGroup": "G", "clientId": "c"}),
    ],
)  # fmt: skip
async def test_a_message_of_others_is_answered_as_no_message(code, field, more) -> None:
    keys = {"authentication_enabled": True, "authorization_enabled": True}
    async with embedded_broker(**keys, init_authentication_user=INIT_USER) as broker:
        put_record(broker, "theirs", "", b"secret")
        accounts = broker.controller.parts.access.users.accounts
        allow(accounts, ["Topic:mine All", "Group:G All"])
        client = await broker.connect()
        answers = []
        for user, offset in ((ALICE, 0), (ALICE, 9), (ROOT, 9)):
            value = message_id(offset) if field == "msgId" else offset
            request = signed(code, {field: value, **more}, user=user)
            answer = await client.answer(await client.send(request))
            answers.append((answer.code, (answer.remark or "").replace("9", "0")))
        assert answers[0] == answers[1]
        assert answers[2][0] == answers[0][0]
        if code != Code.RESUME_CHECK_HALF_MESSAGE:  # Apache puts its exception's text before it
            assert answers[2] == answers[0]


async def test_the_topic_of_a_delayed_and_of_a_half_message_is_the_one_it_is_for() -> None:
    keys = {"authentication_enabled": True, "authorization_enabled": True}
    async with broker_and_client(**keys, init_authentication_user=INIT_USER) as (broker, client):
        properties = send_fields()["i"]
        for fields in (
            send_fields("later", i=f"{properties}DELAY\x013\x02"),
            send_fields("half", f=4, i=f"{properties}TRAN_MSG\x01true\x02PGROUP\x01PG\x02"),
        ):
            opaque = await client.send(signed(Code.SEND_MESSAGE_V2, fields, b"x"))
            assert (await client.answer(opaque)).code == 0
        await trio.testing.wait_all_tasks_blocked()
        topic_at = broker.controller.parts.access.users.places.topic_at
        store = broker.controller.store
        size = store.message_at(0).nbytes
        assert [topic_at(0), topic_at(size), topic_at(1)] == ["later", "half", None]


class OneRecord:
    """A store with one record, or one error."""

    def __init__(self, found) -> None:
        self.found = found

    def message_at(self, physical_offset):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def test_a_damaged_message_is_for_those_who_may_read_all() -> None:
    assert topic_of_message(OneRecord(memoryview(b"no record")), 0) == ""
    assert topic_of_message(OneRecord(None), 0) is None
    assert topic_of_message(OneRecord(StoreIOError("log", "I/O error")), 0) is None
    places = Places("c", lambda offset: "")
    assert contexts(Code.VIEW_MESSAGE_BY_ID, {"offset": 0}, places=places) == ["Topic: Get"]
