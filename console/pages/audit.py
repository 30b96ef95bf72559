"""The page of the audit log."""

from __future__ import annotations

import msgspec

from ..audit_log import CHANGES_MAX, Change
from .page import Ask, Page

SHOWN_MAX = 200
"""Changes on the page: the newest."""


class Audit(msgspec.Struct, frozen=True, rename="camel"):
    """The newest changes, the newest first."""

    changes: tuple[Change, ...]


async def audit(ask: Ask) -> Audit:
    """The newest changes."""
    found = ask.console.audit.newest(CHANGES_MAX)
    return Audit(tuple(each for each in found if may_see(ask, each))[:SHOWN_MAX])


def may_see(ask: Ask, change: Change) -> bool:
    """Whether a person sees a change.

    One with an account of the cluster sees only the person's own: others name topics and groups
    that the account may not see.
    """
    return not ask.person.is_account or change.person == ask.person.name


PAGES = (Page("audit", audit, table="changes"),)
