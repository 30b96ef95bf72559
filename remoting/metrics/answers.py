"""Answers by HTTP, and those for the health of a server: is it alive, and is it ready? Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple


class Answer(NamedTuple):
    """An answer.

    Attributes:
      status: such as 200.
      content_type: of the body.
      body: the content.
    """

    status: int
    content_type: str
    body: bytes


def text_answer(status: int, text: str) -> Answer:
    """An answer of one line of text."""
    return Answer(status, "text/plain; charset=utf-8", f"{text}\n".encode())


_JSON: Final = "application/json"

LIVE: Final = Answer(200, _JSON, b'{"status": "live"}\n')
"""The answer of `/health/live`: the process and its event loop work."""


def answer_of(missing: Sequence[str]) -> Answer:
    """The answer of `/health/ready`: 200 when nothing is missing, otherwise 503.

    Args:
      missing: what keeps the server from being ready, one sentence each.
    """
    body = json.dumps({"status": "not ready" if missing else "ready", "missing": missing})
    return Answer(503 if missing else 200, _JSON, f"{body}\n".encode())
