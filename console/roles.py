"""Roles of people in the console, and who a request comes from."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Role(IntEnum):
    """What a person may do; each role may do what the ones before it may."""

    LOOK = 1
    """See everything but masked values."""
    OPERATE = 2
    """Also send messages, reset offsets, and send dead letters again."""
    ADMINISTER = 3
    """Also create, change and delete topics and groups."""


ROLE_NAMES = {role.name.lower(): role for role in Role}


class Person(msgspec.Struct, frozen=True):
    """Who a request comes from.

    Attributes:
      name: for the page's head and the audit log.
      role: what the person may do.
      is_account: it is an account of the cluster, which decides what the person may do.
    """

    name: str
    role: Role
    is_account: bool = False
