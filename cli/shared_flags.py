"""The flags that all commands share, which may stand before or behind a command's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WITH_VALUE: Final = frozenset({"--url", "-n", "--timeout", "--tls-ca", "--tls-cert", "--tls-key"})
SWITCHES: Final = frozenset({"--json", "--tls", "--tls-no-verify"})


def split_shared(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The shared flags at the beginning of a command line, and the rest."""
    index = 0
    while index < len(words):
        name = words[index].partition("=")[0]
        if name in SWITCHES or (name in WITH_VALUE and name != words[index]):
            index += 1
        elif name in WITH_VALUE:
            index += 2
        else:
            break
    return list(words[:index]), list(words[index:])
