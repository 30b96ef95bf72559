"""Validation of topic names that become paths.

A topic may come from a request, from a record on disk and from a folder's name; each could be
`../x`, with which RocketMQ's broker once wrote outside of its folder (CVE-2019-17572).
"""

from __future__ import annotations

from typing import NewType

TopicPath = NewType("TopicPath", str)
"""One path component that is a topic's name."""

TOPIC_BYTES_MAX = 255
"""Longest file name on the usual file systems; a longer topic cannot have a queue folder (Apache
5.5.0 acknowledges such a message and then never dispatches a message again)."""


def topic_path(topic: str) -> TopicPath | None:
    """Check a topic's name for use as a folder's name.

    Args:
      topic: any string.

    Returns: the name, or None when it is empty, longer than 255 UTF-8 bytes, `.` or `..`, or holds
      a slash, a backslash or a control character.
    """
    if not topic or topic in (".", ".."):
        return None
    if "/" in topic or "\\" in topic or any(character < " " for character in topic):
        return None
    try:
        encoded = topic.encode()
    except UnicodeEncodeError:
        return None
    return TopicPath(topic) if len(encoded) <= TOPIC_BYTES_MAX else None
