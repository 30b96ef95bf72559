"""The pages of a server's port for metrics and health, the same for every server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import trio

from .answers import LIVE, Answer, answer_of, text_answer
from .exposition import CONTENT_TYPE, expose
from .families import Families

PATHS: Final = ("/metrics", "/health/live", "/health/ready")


async def answer_page(
    path: str, metrics: Callable[[str], Awaitable[Answer]], missing: Callable[[], Sequence[str]]
) -> Answer:
    """The answer to GET of a path with its query.

    Args:
      metrics: answers for `/metrics`, from the query.
      missing: what keeps the server from being ready, one sentence each; empty: it is ready.
    """
    path, _, query = path.partition("?")
    if path == "/metrics":
        return await metrics(query)
    if path == "/health/live":
        return LIVE
    if path == "/health/ready":
        return answer_of(missing())
    return text_answer(404, f"there are {', '.join(PATHS)}")


async def exposed(families: Families, common: Mapping[str, str]) -> Answer:
    """The values as text, written in a thread; see `expose`."""
    return Answer(200, CONTENT_TYPE, await trio.to_thread.run_sync(expose, families, common))
