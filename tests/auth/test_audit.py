"""The audit log: which requests have a line, and what is in it."""

from __future__ import annotations

import logging

import pytest

from trocket.auth.audit import ROUTINE, audited, note_refused
from trocket.auth.gate import guarded
from trocket.common.log_lines import JsonFormatter
from trocket.remoting.channel import Answer, Channel, Deferred
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RequestRefused
from trocket.remoting.request_codes import RequestCode as Code


class FakeChannel:
    remote_address = "10.0.0.7:51000"


PEER: Channel = FakeChannel()  # type: ignore[assignment]
SIGNED = {"AccessKey": "alice", "Signature": "c2VjcmV0"}


def serve(request: RemotingCommand, channel: Channel) -> Answer:
    return request.answer()


def refuse(request: RemotingCommand, channel: Channel) -> Answer:
    raise RequestRefused(16, "The user is existed")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "trocket.auth.audit")
    return caplog


def test_a_refused_request_has_a_line(log: pytest.LogCaptureFixture) -> None:
    fields = {**SIGNED, "b": "Orders"}
    request = RemotingCommand(Code.SEND_MESSAGE_V2, fields, b"the message")
    note_refused(request, PEER, RequestRefused(16, "check signature failed."))
    (record,) = log.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "refused: SEND_MESSAGE_V2 user=alice address=10.0.0.7:51000 topic=Orders outcome=refused "
        'code=16 reason="check signature failed."'
    )


def test_an_administrative_request_has_a_line_with_its_outcome(
    log: pytest.LogCaptureFixture,
) -> None:
    fields = {**SIGNED, "username": "bob"}
    request = RemotingCommand(Code.AUTH_CREATE_USER, fields, b'{"password":"geheim"}')
    audited(request.code, serve)(request, PEER)
    with pytest.raises(RequestRefused):
        audited(request.code, refuse)(request, PEER)
    start = "administration: AUTH_CREATE_USER user=alice address=10.0.0.7:51000 username=bob "
    assert [record.getMessage() for record in log.records] == [
        f"{start}outcome=done",
        f'{start}outcome=failed code=16 reason="The user is existed"',
    ]
    assert {record.levelname for record in log.records} == {"INFO"}


def test_a_slave_that_learns_nothing_new_has_no_line(log: pytest.LogCaptureFixture) -> None:
    request = RemotingCommand(Code.AUTH_LIST_USER, {**SIGNED, "accountsVersion": "7"})

    def unchanged(request: RemotingCommand, channel: Channel) -> Answer:
        return request.answer(ext_fields={"accountsVersion": "7"})

    def changed(request: RemotingCommand, channel: Channel) -> Answer:
        return request.answer(ext_fields={"accountsVersion": "8"}, body=b"[]")

    def with_users(request: RemotingCommand, channel: Channel) -> Answer:
        return request.answer(ext_fields={"accountsVersion": "7"}, body=b"[]")

    audited(request.code, unchanged)(request, PEER)
    assert not log.records
    for process in (changed, with_users, serve):
        audited(request.code, process)(request, PEER)
    assert len(log.records) == 3


async def test_the_outcome_of_what_is_awaited_is_that_of_the_end(
    log: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> RemotingCommand:
        raise RequestRefused(1, "the disk is full")

    async def work() -> RemotingCommand:
        return request.answer()

    request = RemotingCommand(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    for run in (work, fail):
        deferred = Deferred(run)
        answer = audited(request.code, lambda *_, found=deferred: found)(request, PEER)
        assert isinstance(answer, Deferred)
        if run is work:
            await answer.run()
        else:
            with pytest.raises(RequestRefused):
                await answer.run()
    done, failed = (record.getMessage() for record in log.records)
    assert done == (
        "administration: DELETE_TOPIC_IN_BROKER user=- address=10.0.0.7:51000 topic=T outcome=done"
    )
    assert failed.endswith('outcome=failed code=1 reason="the disk is full"')


def test_what_clients_send_has_none_and_costs_nothing(log: pytest.LogCaptureFixture) -> None:
    for code in (Code.SEND_MESSAGE_V2, Code.PULL_MESSAGE, Code.HEART_BEAT):
        assert audited(code, serve) is serve
    assert log.records == []


def test_what_changes_a_server_is_never_routine() -> None:
    words = {"CREATE", "UPDATE", "DELETE", "PUT", "RESET", "CLEAN", "REMOVE", "ADD", "WIPE", "AUTH"}
    allowed = {Code.UPDATE_CONSUMER_OFFSET}
    assert {code for code in ROUTINE if words & set(code.name.split("_"))} == allowed


def test_a_peers_text_cannot_forge_a_line(log: pytest.LogCaptureFixture) -> None:
    fields = {"AccessKey": "x\nadministration: all is well", "topic": "a b=c"}
    note_refused(RemotingCommand(31337, fields), PEER, RequestRefused(16, "no\nsuch user"))
    text = log.records[0].getMessage()
    assert "\n" not in text
    assert text.startswith(r'refused: 31337 user="x\nadministration: all is well" address=')
    assert 'topic="a b=c" ' in text
    assert "\n" not in JsonFormatter().format(log.records[0])


def test_the_gate_writes_both(log: pytest.LogCaptureFixture) -> None:
    def check(request: RemotingCommand, channel: Channel) -> None:
        if request.ext_fields.get("AccessKey") != "alice":
            raise RequestRefused(16, "username cannot be null.")

    create = Code.UPDATE_AND_CREATE_TOPIC
    process = guarded({int(create): serve}, check)[create]
    process(RemotingCommand(create, {**SIGNED, "topic": "T"}), PEER)
    with pytest.raises(RequestRefused):
        process(RemotingCommand(create, {"topic": "T"}), PEER)
    done, refused = (record.getMessage() for record in log.records)
    assert done == (
        "administration: UPDATE_AND_CREATE_TOPIC user=alice address=10.0.0.7:51000 topic=T "
        "outcome=done"
    )
    assert refused.startswith("refused: UPDATE_AND_CREATE_TOPIC user=- address=10.0.0.7:51000 ")
