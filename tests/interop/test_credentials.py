"""The client's signatures before Apache's own access control: 1.0 of 4.9.7, 2.0 of 5.5.0."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from trocket import (
    AccessDeniedError,
    Admin,
    ConsumeFromWhere,
    Credentials,
    Message,
    Producer,
    PushConsumer,
    SendError,
    ServerError,
)
from trocket.interop.accounts import (
    SUPER,
    Accounts,
    generations_of,
    open_with_accounts,
    start_with_accounts,
)
from trocket.interop.peer import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

USER, PASSWORD = SUPER.keys.access_key, SUPER.keys.secret_key
RIGHT = Credentials(USER, PASSWORD)
WRONG = Credentials(USER, "another-secret-of-its-own")
DEADLINE_S = 60.0


@pytest.fixture(params=["apache-4.9.7", "apache-5.5.0"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    (generation,) = generations_of(request.param)
    accounts = Accounts(generation, ())
    apache = open_with_accounts(request.param, tmp_path / "cluster", accounts, {})
    try:
        start_with_accounts(apache, accounts)
        yield apache
    finally:
        apache.close()


def test_signed_requests_pass_and_others_do_not(cluster: Cluster) -> None:
    url = cluster.namesrv_address

    async def scenario() -> None:
        async with Admin(url, credentials=RIGHT) as admin:
            # 5.5.0 says that it is up before the name server knows it.
            while not (await admin.cluster()).brokers:  # noqa: ASYNC110 - only Apache knows
                await anyio.sleep(0.1)
            await admin.create_topic("Secret", queues=1)
        async with Producer(url, credentials=RIGHT) as producer:
            sent = await producer.send(Message("Secret", "a", tags="t", keys="k"))
            await producer.send(Message("Secret", "x" * 10_000))
            await producer.send_batch([Message("Secret", "b"), Message("Secret", "c")])
        async with PushConsumer(
            url,
            group="readers",
            subscriptions={"Secret": "*"},
            credentials=RIGHT,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer:
            lengths = []
            async for message in consumer:
                lengths.append(len(message.body))
                if len(lengths) == 4:
                    break
            assert lengths == [1, 10_000, 1, 1]
        async with Admin(url, credentials=RIGHT) as admin:
            while await admin.message(sent.message_id, topic="Secret") is None:  # noqa: ASYNC110
                await anyio.sleep(0.1)  # the broker's index lags behind
        for credentials in (WRONG, Credentials("unknown-key", PASSWORD), None):
            options = {} if credentials is None else {"credentials": credentials}
            async with Producer(url, retry_times=0, **options) as producer:
                with pytest.raises((SendError, ServerError)) as caught:
                    await producer.send(Message("Secret", "a"))
                error = caught.value
                denied = error.attempts[0].error if isinstance(error, SendError) else error
                assert isinstance(denied, AccessDeniedError), denied
                assert PASSWORD not in str(error)

    async def main() -> None:
        with anyio.fail_after(DEADLINE_S):
            await scenario()

    anyio.run(main)
