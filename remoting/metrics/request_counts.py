"""Counts a server's requests by their code, for its metrics only.

Java counterpart: none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..channel import Answer, Channel, Processor
from ..codec import RemotingCommand


def counted(processors: Mapping[int, Processor], counts: Counter[int]) -> dict[int, Processor]:
    """The processors, which count their requests by code before they serve them."""

    def with_count(code: int, process: Processor) -> Processor:
        def serve(request: RemotingCommand, channel: Channel) -> Answer:
            counts[code] += 1
            return process(request, channel)

        return serve

    return {code: with_count(code, process) for code, process in processors.items()}
