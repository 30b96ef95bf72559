"""Scenarios: the refusals of requests by accounts that may not."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable
from typing import Any

from trocket import AccessDeniedError, SendError, ServerError

from .door import OWN_ACCOUNT, account_of
from .stage import Play, Stage

JAVA_PLACE = re.compile(r", [\w.$]+\([\w.]+:\d+\)$")
"""The line of Java that 4.x adds to a string."""
NO_ACCOUNT: dict[str, Any] = {"credentials": None}


async def refusal(stage: Stage, asked: Awaitable[Any]) -> Any:
    """The broker's code and text."""
    try:
        await asked
    except (SendError, ServerError) as error:
        cause = error.attempts[0].error if isinstance(error, SendError) else error
        assert isinstance(cause, AccessDeniedError), cause
        text = JAVA_PLACE.sub("", cause.remark)
        return [cause.code, text.replace(stage.topic, "<topic>")]
    return "passed"


async def refused(stage: Stage) -> None:
    """Sends with no account, with wrong ones, and each kind of request without the right."""
    own = OWN_ACCOUNT["credentials"]
    accounts = {
        "no_account": NO_ACCOUNT,
        "unknown": account_of("interop-unknown the-secret-of-unknown"),
        "other_secret": account_of(f"{own.access_key} {own.secret_key}-other"),
    }
    for name, account in accounts.items():
        producer = await _producer(stage, account)
        stage.facts[name] = await refusal(stage, producer.send(stage.message("refused")))
    weak = account_of(os.environ["INTEROP_WEAK_ACCOUNT"])
    producer = await _producer(stage, weak)
    stage.facts["send"] = await refusal(stage, producer.send(stage.message("refused")))
    delayed = stage.message("refused", delay_level=1)
    stage.facts["delayed"] = await refusal(stage, producer.send(delayed))
    await producer.send_oneway(stage.message("refused"))
    consumer = await stage.enter(
        stage.door.pull_consumer(stage.namesrv, group=stage.topic, auto_commit=False, **weak)
    )
    queue = (await consumer.queues(stage.topic))[0]
    stage.facts["pull"] = await refusal(stage, consumer.pull(queue, 0, count=1))
    # Of ACL 2.0 only.
    stage.facts["end_offset"] = await refusal(stage, consumer.end_offset(queue))
    await stage.send("last")
    stage.facts["received"] = [message.text for message in await stage.receive(1)]
    # Last, because ACL 1.0 of 4.9.7 lets it pass.
    two = [stage.message("refused"), stage.message("refused")]
    stage.facts["batch"] = await refusal(stage, producer.send_batch(two))


async def _producer(stage: Stage, account: dict[str, Any]) -> Any:
    return await stage.enter(
        stage.door.producer(stage.namesrv, group=stage.topic, retry_times=0, **account)
    )


ALL: dict[str, Play] = {"refused": refused}
