"""Scenarios: transactions that commit, roll back, or are checked by the broker."""

from __future__ import annotations

from typing import Any

from trocket import Message, TransactionState

from .stage import Play, Stage

STATES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
LOCAL = {"commits": TransactionState.COMMIT, "rolls-back": TransactionState.ROLLBACK}


async def play(stage: Stage) -> None:
    asked: dict[str, int] = {}

    def check(message: Any) -> TransactionState:
        asked[message.text] = asked.get(message.text, 0) + 1
        return TransactionState.COMMIT if message.text == "asks" else TransactionState.ROLLBACK

    def local(message: Message) -> TransactionState:
        return LOCAL.get(message.body, TransactionState.UNKNOWN)

    producer = await stage.enter(
        stage.door.transaction_producer(
            stage.namesrv, group=stage.topic, check=check, timeout_s=10.0
        )
    )
    sent = {}
    for body in ("rolls-back", "asks-rolls-back", "asks", "commits"):
        message = stage.message(body, "Tag", f"key-{body}")
        result = await producer.send_in_transaction(message, local)
        sent[body] = [result.result.status.name, STATES[result.state]]
    inbox = await stage.inbox()
    # The last check has happened, so the others have, too.
    got = await inbox.wait(lambda items: len(items) >= 2 and len(asked) >= 2)
    stage.facts |= {
        "sent": sent,
        "asked": dict(sorted(asked.items())),
        "received": sorted(f"{m.text} {' '.join(m.keys)}" for m in got),
    }


ALL: dict[str, Play] = {"transaction": play}
