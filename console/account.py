"""An account of the cluster, and what is seen with it: once for all who have it."""

from __future__ import annotations

from typing import Final

import anyio
from anyio.abc import TaskStatus

from ..client import Admin
from ..operations.feed import Feed, FeedView
from ..operations.message_search.criteria import Mask
from ..operations.sampling import PAGE, Sampler
from ..operations.watch import Watch
from .findings import Findings
from .samples import Samples
from .stopped import KnownFindings
from .tails import Tails

FEED_S: Final = 2.0
"""Between two looks of the feed: with at most four requests at rest, a broker gets two a second."""
FEED_LINGER_S: Final = 10.0
"""How long the feed goes on after its last viewer: without scripts, a page is loaded again."""
_IGNORED: Final = anyio.TASK_STATUS_IGNORED


class Account:
    """What the people of one account see; what it may not see is in none of it.

    Args:
      admin: open, with this account.
      mask: hides what no one may see.
      findings: what is known to be wrong; None: a doctor finds it.

    Attributes:
      samples, findings, tails, feed: one for all viewers of this account.
    """

    def __init__(self, admin: Admin, mask: Mask, findings: KnownFindings | None = None) -> None:
        self.admin = admin
        self.samples = Samples(Sampler(admin, with_new_groups=True, bounds=PAGE).sample)
        self.findings: Findings | KnownFindings = findings or Findings(admin.client)
        self.tails = Tails(admin, mask)
        self.feed: Watch[FeedView] = Watch(
            Feed(admin, mask).look, interval_s=FEED_S, linger_s=FEED_LINGER_S
        )

    async def run(self, *, task_status: TaskStatus[None] = _IGNORED) -> None:
        """Look while there are viewers, until it is cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.samples.run)
            tasks.start_soon(self.findings.run)
            tasks.start_soon(self.feed.run)
            await tasks.start(self.tails.run)
            task_status.started()
