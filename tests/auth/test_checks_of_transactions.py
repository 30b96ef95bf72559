"""The checks of transactions, which show a half message: only to producers that may send there."""

from __future__ import annotations

import trio
import trio.testing

from trocket.auth.model import User
from trocket.remoting.request_codes import RequestCode

from ..kit import embedded_broker, send_fields
from .signed import ALICE, allow, signed
from .test_servers import ACCESS, SEND, accounts_of


async def test_a_check_shows_a_half_message_only_to_who_may_send_to_its_topic(autojump_clock):
    async with embedded_broker(**ACCESS) as broker:
        allow(accounts_of(broker), [])
        spy, producer = await broker.connect(), await broker.connect()
        heartbeat = b'{"clientID":"%s","producerDataSet":[{"groupName":"PG"}]}'

        async def ask(client, request):
            answer = await client.answer(await client.send(request))
            assert answer.code == 0, answer.remark

        await ask(spy, signed(RequestCode.HEART_BEAT, {}, heartbeat % b"spy", user=ALICE))
        half = send_fields(f=4, i=f"{send_fields()['i']}TRAN_MSG\x01true\x02PGROUP\x01PG\x02")
        await ask(producer, signed(SEND, half, b"secret"))
        await trio.sleep(60)
        await ask(spy, signed(RequestCode.HEART_BEAT, {}, heartbeat % b"spy", user=ALICE))
        assert spy.pushed == []
        await ask(producer, signed(RequestCode.HEART_BEAT, {}, heartbeat % b"p"))
        check = await producer.asked()
        assert check.code == RequestCode.CHECK_TRANSACTION_STATE
        allow(accounts_of(broker), ["Topic:T Pub"])
        await producer.stream.aclose()
        assert b"secret" in (await spy.asked()).body


async def test_under_acl_1_a_check_shows_it_only_to_who_may_send_there(autojump_clock, tmp_path):
    (tmp_path / "plain_acl.yml").write_text(
        "accounts:\n"
        "- {accessKey: producer, secretKey: secret-of-one, topicPerms: [T=PUB]}\n"
        "- {accessKey: stranger, secretKey: secret-of-two}\n"
    )
    may, may_not = User("producer", "secret-of-one"), User("stranger", "secret-of-two")
    async with embedded_broker(acl_enable=True, acl_config_path=str(tmp_path)) as broker:
        spy, producer = await broker.connect(), await broker.connect()
        heartbeat = b'{"clientID":"%s","producerDataSet":[{"groupName":"PG"}]}'
        half = send_fields(f=4, i=f"{send_fields()['i']}TRAN_MSG\x01true\x02PGROUP\x01PG\x02")
        for client, request in (
            (spy, signed(RequestCode.HEART_BEAT, {}, heartbeat % b"spy", user=may_not)),
            (producer, signed(SEND, half, b"secret", user=may)),
        ):
            assert (await client.answer(await client.send(request))).code == 0
        await trio.sleep(60)
        again = signed(RequestCode.HEART_BEAT, {}, heartbeat % b"spy", user=may_not)
        assert (await spy.answer(await spy.send(again))).code == 0
        assert spy.pushed == []
        await producer.send(signed(RequestCode.HEART_BEAT, {}, heartbeat % b"p", user=may))
        check = await producer.asked()
        assert check.code == RequestCode.CHECK_TRANSACTION_STATE
