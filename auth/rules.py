"""Rules: the settings of one server's access control."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of one server's access control.

    Attributes:
      authorizes: whether users need rights; otherwise each that proves its name may do everything.
      unauthenticated: codes that anyone may send: authenticationWhitelist. A code for which users
        need rights is authenticated in any case, because rights belong to a proved name.
      unauthorized: codes that every user may send: authorizationWhitelist.
    """

    authorizes: bool = False
    unauthenticated: frozenset[int] = frozenset()
    unauthorized: frozenset[int] = frozenset()
