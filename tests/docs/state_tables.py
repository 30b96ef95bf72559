"""The page docs/states.md, drawn from the tables of the code.

python -m tests.docs.state_tables > docs/states.md
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trocket.store.recovery.recovery_table import TABLE
from trocket.store.store_state import FACTS, TRANSITIONS, StoreEvent, StoreState

HEAD = """# States

The state tables of the code, as `python -m tests.docs.state_tables` draws them; a test compares
this page with the code.
"""

STORE = """## A store

A state decides whether a message is put. An event that a row does not name changes nothing. Source:
`store/store_state.py`.
"""

RECOVERY = """## The end of a log

A start reads the log up to the last good record; the row decides about the bytes after it. Every
combination meets exactly one row. Source: `store/recovery/recovery_table.py`.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, STORE, store_drawing(), store_states(), RECOVERY, recovery()])


def store_drawing() -> str:
    """The transitions as a state diagram, which GitHub draws."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {StoreState.CLOSED.name}"]
    for state, events in TRANSITIONS.items():
        by_next: dict[StoreState, list[StoreEvent]] = {}
        for event, following in events.items():
            by_next.setdefault(following, []).append(event)
        for following, causes in by_next.items():
            text = ", or ".join(cause.value for cause in causes)
            lines.append(f"    {state.name} --> {following.name}: {text}")
    return "\n".join([*lines, "```", ""])


def store_states() -> str:
    """One row for each state of a store."""
    rows = []
    for state, facts in FACTS.items():
        puts = "taken" if facts.takes_puts else "refused"
        lasts = "until the store is opened again" if facts.is_read_only else ""
        rows.append([state.name, puts, lasts, facts.remark.replace("{}", "(the reason)")])
    return table(["state", "puts", "read-only", "remark of a refused put"], rows)


def recovery() -> str:
    """One row for each case of a log's end."""
    rows = [
        [
            case.label,
            " / ".join(rest.value for rest in case.rest),
            {None: "any", True: "clean", False: "not clean"}[case.clean],
            " / ".join(place.value for place in case.place),
            case.flush.value if case.flush else "any",
            case.action.value,
            case.why,
        ]
        for case in TABLE
    ]
    head = ["case", "behind the last good record", "exit", "the first bad byte lies", "flush"]
    return table([*head, "what is done", "why"], rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
