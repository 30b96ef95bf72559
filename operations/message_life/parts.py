"""The parts of a question to a cluster: what each of them may fail with is noted, not raised."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from ...client import BrokersError, ClientError, ConnectError, RequestTimeoutError
from ...client.errors import is_not_supported
from .facts import Gap, GapReason

T = TypeVar("T")


class Parts:
    """Asks, and keeps the gaps: what failed, and what is not answered yet.

    Attributes:
      failed: what failed so far.
    """

    def __init__(self) -> None:
        self.failed: list[Gap] = []
        self._open: dict[int, tuple[str, str]] = {}

    async def get(self, what: str, of: str, call: Awaitable[T]) -> T | None:
        """The answer to a call of an `Admin`; None: it failed.

        Of brokers of which some failed it is the others' part.

        Args:
          what, of: as in Gap.
        """
        key = id(call)
        self._open[key] = what, of
        found: T | None
        try:
            found = await call
        except BrokersError as error:
            self.failed += [
                Gap(what, each.broker_name, _reason(each.error), str(each.error))
                for each in error.failures
            ]
            found = error.partial
        except ClientError as error:
            self.failed.append(Gap(what, of, _reason(error), str(error)))
            found = None
        # Not in a `finally`: what is cancelled by the deadline stays open.
        del self._open[key]
        return found

    def note(self, what: str, of: str, reason: GapReason) -> None:
        """Keep a gap that is no error."""
        self.failed.append(Gap(what, of, reason))

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What failed, and what has no answer yet, sorted."""
        silent = [Gap(what, of, GapReason.SILENT) for what, of in self._open.values()]
        found = {(gap.what, gap.of): gap for gap in (*silent, *self.failed)}
        return tuple(found[key] for key in sorted(found))


def _reason(error: ClientError) -> GapReason:
    if is_not_supported(error):
        return GapReason.NOT_SUPPORTED
    if isinstance(error, ConnectError | RequestTimeoutError):
        return GapReason.SILENT
    return GapReason.REFUSED
