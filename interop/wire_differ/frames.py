"""The frames of both sides as lines of a report."""

from __future__ import annotations

from collections.abc import Iterator

from ...remoting.codec import encode
from ..frame_lines import frame_line
from .player import Outcome


def exchange_lines(labels: tuple[str, str], outcomes: tuple[Outcome, Outcome]) -> Iterator[str]:
    """The request, the answer and the error of each side, as far as it has them."""
    for label, outcome in zip(labels, outcomes, strict=True):
        code = None
        if outcome.asked is not None:
            code = outcome.asked.code
            yield f"{label} {frame_line(encode(outcome.asked))}"
        if outcome.answered is not None:
            yield f"{label} {frame_line(encode(outcome.answered), request_code=code)}"
        if outcome.broken:
            yield f"{label}: {outcome.broken}"
