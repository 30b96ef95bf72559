"""Names for topics and groups that no other test has, and that say whose they are."""

from __future__ import annotations

import re
import uuid

_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]+")
_TEST_LENGTH_MAX = 60
"""Characters of the test's name: with the rest a name stays far below RocketMQ's 127."""


def unique_name(kind: str, test: str) -> str:
    """A name of letters, digits, `_` and `-`.

    Args:
      kind: what it is for, such as "topic".
      test: the test's name, of which as much is kept as is allowed.
    """
    readable = _NOT_ALLOWED.sub("_", test)[:_TEST_LENGTH_MAX].strip("_")
    return f"{kind}-{readable}-{uuid.uuid4().hex[:8]}"
