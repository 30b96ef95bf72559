"""The life of one message: where it is, and what each consumer group did with it, and from what
that is known.

`collect.py` asks a cluster, `facts.py` has what was learnt, `outcomes.py` and `verdict.py` say what
follows from it; these are pure, and without texts: who shows a life has the words for it.
"""

from __future__ import annotations

from .collect import DEADLINE_S, collect_life
from .facts import (
    CopyFacts,
    CopyKind,
    Gap,
    GapReason,
    GroupFacts,
    LifeFacts,
    LookUp,
    LookUpResult,
    MemberFacts,
    MessageFacts,
    Retention,
    SlaveFacts,
)
from .outcomes import GroupOutcome, OutcomeKind, Refusal, RefusalReason, Source, group_outcome
from .stages import Stage, StageKind, StageState, stages
from .verdict import Life, Verdict, VerdictKey, life_of

__all__ = [
    "DEADLINE_S",
    "CopyFacts",
    "CopyKind",
    "Gap",
    "GapReason",
    "GroupFacts",
    "GroupOutcome",
    "Life",
    "LifeFacts",
    "LookUp",
    "LookUpResult",
    "MemberFacts",
    "MessageFacts",
    "OutcomeKind",
    "Refusal",
    "RefusalReason",
    "Retention",
    "SlaveFacts",
    "Source",
    "Stage",
    "StageKind",
    "StageState",
    "Verdict",
    "VerdictKey",
    "collect_life",
    "group_outcome",
    "life_of",
    "stages",
]
