"""Unique names of topics and groups, which contain the name of the test."""

from __future__ import annotations

import re
import uuid

_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]+")
_TEST_LENGTH_MAX = 60
"""Number of characters kept of the test's name: names stay far below RocketMQ's limit of 127."""


def unique_name(kind: str, test: str) -> str:
    """A unique name of letters, digits, `_` and `-`.

    Args:
      kind: prefix, such as "topic".
      test: name of the test, which is shortened and cleaned of other characters.
    """
    readable = _NOT_ALLOWED.sub("_", test)[:_TEST_LENGTH_MAX].strip("_")
    return f"{kind}-{readable}-{uuid.uuid4().hex[:8]}"
