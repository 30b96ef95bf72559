"""EndTransaction, and the check that a broker asks of a producer."""

from __future__ import annotations

from typing import Any

from .builders import message, producer_settings, resource, send, wrong_calls
from .call import Call, Script, Step, Talk, Topic, given
from .tree import any_value

_TOPIC = "transaction"


def _end(name: str, sent: str, resolution: int, **changed: Any) -> Call:
    fields = {
        "topic": resource(_TOPIC),
        "message_id": "01AB",
        "transaction_id": given(sent, "0.entries.0.transaction_id"),
        "resolution": resolution,
        "source": 1,
    }
    return Call(name, "EndTransaction", fields | changed)


def _scripts() -> list[Script]:
    half = message(_TOPIC, message_type=4)
    steps: list[Step] = [Topic(_TOPIC, "TRANSACTION"), Topic("transaction-other", "TRANSACTION")]
    steps.append(Talk("a producer", (producer_settings(_TOPIC),)))
    for words, resolution in (("commit", 1), ("rollback", 2), ("unknown", 0), ("strange", 9)):
        sent = f"a half message for {words}"
        steps += (send(sent, half), _end(words, sent, resolution), _end(f"{words} twice", sent, 1))
    sent = "a half message for other fields"
    steps += (
        send(sent, half),
        _end("by another message's id", sent, 2, message_id="other"),
        send(f"{sent} 2", half),
        _end("of another topic", f"{sent} 2", 1, topic=resource("transaction-other")),
        send(f"{sent} 3", half),
        _end("of an unknown topic", f"{sent} 3", 1, topic=resource("transaction-no")),
        send(f"{sent} 4", half),
        _end("by a check", f"{sent} 4", 1, source=2),
        send(f"{sent} 5", half),
        _end("by nothing", f"{sent} 5", 1, source=0),
        _end("of an unknown id", sent, 1, transaction_id="no such"),
        _end("of a blank id", sent, 1, transaction_id=" "),
    )
    other = "transaction-wrong"
    right = {
        "topic": resource(other),
        "message_id": "01AB",
        "transaction_id": "no such",
        "resolution": 1,
        "source": 1,
        "trace_context": "t",
    }
    wrong: tuple[Step, ...] = (Topic(other, "TRANSACTION"), *wrong_calls("EndTransaction", right))
    check = message(
        "check", message_type=4, orphaned_transaction_recovery_duration={"seconds": 1}, tag="t"
    )
    asked = "answers.0.recover_orphaned_transaction_command"
    checked: tuple[Step, ...] = (
        Topic("check", "TRANSACTION"),
        Talk("a producer to check", (producer_settings("check"),)),
        send("a half message that is checked", check),
        Talk(
            "the check",
            (),
            changes=(
                any_value(f"{asked}.message.user_properties.TRANSACTION_CHECK_TIMES"),
                any_value(f"{asked}.message.system_properties.queue_offset"),
            ),
        ),
        Call(
            "after the check",
            "EndTransaction",
            {
                "topic": resource("check"),
                "message_id": "01AB",
                "transaction_id": given(
                    "the check", "0.recover_orphaned_transaction_command.transaction_id"
                ),
                "resolution": 1,
                "source": 2,
            },
        ),
    )
    return [
        Script("transactions", tuple(steps)),
        Script("wrong-transactions", wrong),
        Script("checks", checked),
    ]


SCRIPTS = tuple(_scripts())
