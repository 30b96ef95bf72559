"""Known differences with accounts, by generation of access control (see `known_bugs`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..accounts import Generation
from .known_bugs import KnownBug

KNOWN_ACCESS_BUGS: Final[Mapping[Generation, tuple[KnownBug, ...]]] = MappingProxyType(
    {Generation.ACL_1: (), Generation.ACL_2: ()}
)
