"""Registrar: keeps the broker and its topics known to its name servers.

Every name server has a link and a task of its own; one that does not answer delays no other.
Callers who wait until a topic is known are not kept for long, either: a hung name server costs
the first of them REGISTRATION_WAIT_S, and the later ones nothing while another one answers. If
none has answered yet, callers wait a little longer, and the broker's start waits for
registerBrokerTimeoutMills: what no name server knows, no client finds.

Java counterpart: BrokerController.registerBrokerAll of 5.3.3, which waits for the slowest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import trio

from ..common.supervision import FailureLog, Supervisor, contained
from ..remoting.bodies import TopicConfig
from ..remoting.client import RemotingClient
from ..remoting.errors import RemotingError
from .config import MASTER_ID, BrokerConfig
from .registration_answer import Master
from .registration_link import RegistrationLink
from .registration_request import BrokerIdentity, is_one_part
from .topic_config_manager import TopicConfigManager

logger = logging.getLogger(__name__)

REGISTRATION_WAIT_S = 1.0
"""How long a request waits for a name server that is late, if another one has answered or if all
are known not to answer. RocketMQ: registerBrokerTimeoutMills, 24 s."""

FIRST_ANSWER_WAIT_S = 2.5
"""How long a request waits for the first name server that answers; a name server on a busy machine
may take more than a second. Clients give up after 3 to 5 s."""

MASTER_UNKNOWN_PERIOD_S = 10.0
"""Between the registrations of a slave that knows no master: that is how it hears of one. RocketMQ:
as always, up to 30 s."""


def _ignore_master(_: Master | None) -> None:
    """A master has no master."""


class Registrar:
    """Keeps the broker known to its name servers.

    Lifecycle: `run` owns the tasks, in the controller's nursery; `unregister_all` after its end.

    Args:
      config: the broker's; read at every registration.
      client: running.
      topics: what is registered; its ordered topics are marked as the name servers say.
      identity: gives what each registration says of the broker itself, when `run` is called and
        later.
      on_master: of a slave; called after each answer with what the first of the name servers that
        knows a master says; None: none does.
    """

    def __init__(
        self,
        config: BrokerConfig,
        client: RemotingClient,
        topics: TopicConfigManager,
        identity: Callable[[], BrokerIdentity],
        on_master: Callable[[Master | None], None] = _ignore_master,
    ) -> None:
        self._config = config
        self._client = client
        self._topics = topics
        self._identity = identity
        self._on_master = on_master
        self._masters: dict[str, Master] = {}  # by name server
        self._links: list[RegistrationLink] = []
        self._nursery: trio.Nursery | None = None  # while `run` runs
        self._progress = trio.Event()
        self._failures = FailureLog(logger)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register now, every period, and soon after every change; until cancelled.

        Started when the first registration is done, as `register_all` waits for it.
        """
        self._links = [
            RegistrationLink(
                address,
                self._client,
                self._topics,
                self._identity,
                period_s=self._period_s,
                on_master=self._note_master,
                on_progress=self._note_progress,
            )
            for address in self._config.namesrv_addresses
        ]
        async with trio.open_nursery() as nursery:
            links = Supervisor(nursery, logger)
            for link in self._links:
                links.start_soon(f"the registration with name server {link.address}", link.run)
            timeout_s = self._config.register_broker_timeout_mills / 1000
            await self._register((), whole=True, first_answer_s=timeout_s)
            self._nursery = nursery
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def _period_s(self) -> float:
        wants_master = self._config.broker_id != MASTER_ID and not self._masters
        return MASTER_UNKNOWN_PERIOD_S if wants_master else self._config.register_period_s

    def changed(self) -> None:
        """The filter servers changed: register soon."""
        for link in self._links:
            link.want()

    def topics_changed(self, topics: Sequence[TopicConfig]) -> None:
        """Register soon what changed.

        Args:
          topics: that are new or different; empty: topics were deleted. A name server hears of a
            deletion from a table that comes in one part, if it hears of it at all.
        """
        count = len(self._topics.topic_config_table)
        deletes = not topics and is_one_part(self._config, count)
        for link in self._links:
            link.want((topic.topic_name for topic in topics), whole=deletes)

    async def register_all(self) -> None:
        """Register the whole table with every name server, and wait as `register_topics` does."""
        await self._register((), whole=True)

    async def register_topics(self, topics: Iterable[str] = ()) -> None:
        """Register topics, and what else changed, and wait until the name servers know them.

        It waits for all name servers that answer, as long as the module's text says, and then
        returns: a name server that was late is told in the background. Failures are logged, not
        raised.

        Args:
          topics: names; these are registered even where the name servers have them.
        """
        await self._register(topics, whole=False)

    def when_registered(self, topic: str, callback: Callable[[], None]) -> bool:
        """Call back when the name servers know a topic that changed before.

        They have as long as for `register_topics`.

        Args:
          topic: its name.
          callback: called from a task of the registrar.
        Returns: whether there is anything to wait for; if not, there will be no call.
        """
        if self._nursery is None or not self._links:
            return False
        self._nursery.start_soon(self._call_when_registered, topic, callback)
        return True

    async def _call_when_registered(self, topic: str, callback: Callable[[], None]) -> None:
        what = f"waiting until the name servers know topic {topic}"
        try:
            with contained(self._failures, what, "It is served without"):
                waiting = {link: link.asked for link in self._links}
                await self._await_links(waiting, FIRST_ANSWER_WAIT_S)
        finally:
            callback()  # even when the registrar ends, or is started again

    async def _register(
        self, topics: Iterable[str], *, whole: bool, first_answer_s: float = FIRST_ANSWER_WAIT_S
    ) -> None:
        names = list(topics)
        waiting: dict[RegistrationLink, int] = {}
        for link in self._links:
            link.want(names, whole=whole)
            waiting[link] = link.asked
        await self._await_links(waiting, first_answer_s)

    async def _await_links(
        self, waiting: dict[RegistrationLink, int], first_answer_s: float
    ) -> None:
        """Wait until the name servers have answered, or had their time.

        Args:
          waiting: which attempt of each link.
          first_answer_s: as long as none has answered, and one may.
        """
        began_s = trio.current_time()
        while not _is_enough(waiting):
            has_answer = any(link.done >= asked for link, asked in waiting.items())
            is_hopeful = any(link.is_answering for link in waiting)
            wait_s = first_answer_s if is_hopeful and not has_answer else REGISTRATION_WAIT_S
            with trio.move_on_at(began_s + wait_s) as limit:
                await self._progress.wait()
            if limit.cancelled_caught:
                self._note_silence(waiting, wait_s)
                return

    def _note_silence(self, waiting: dict[RegistrationLink, int], wait_s: float) -> None:
        for link, asked in waiting.items():
            # A large table takes longer than that, part by part; then it answers all the while.
            is_silent = trio.current_time() - link.heard_s > REGISTRATION_WAIT_S / 2
            if link.done < asked and is_silent:
                link.note_silence(f"no answer to a registration within {wait_s:g} s")

    def _note_progress(self) -> None:
        self._progress.set()
        self._progress = trio.Event()

    async def unregister_all(self) -> None:
        """Say goodbye to every name server."""
        async with trio.open_nursery() as nursery:
            for link in self._links:
                nursery.start_soon(self._unregister, link)

    async def _unregister(self, link: RegistrationLink) -> None:
        what = f"saying goodbye to name server {link.address}"
        with contained(self._failures, what, "It may know this broker for 2 minutes more"):
            try:
                await link.unregister()
            except RemotingError as error:
                logger.warning(
                    "name server %s: %s. It was not told that the broker stops, and forgets it "
                    "when the connection closes, or after 2 minutes",
                    link.address, error,
                )  # fmt: skip

    def _note_master(self, address: str, master: Master | None) -> None:
        """A slave's name servers may differ for a while: the first one that knows a master counts.

        One that does not answer is believed what it said last: the master may be there all the
        same. One that was started again knows none until the master has registered.
        """
        if master is None:
            self._masters.pop(address, None)
        else:
            self._masters[address] = master
        known = map(self._masters.get, self._config.namesrv_addresses)
        self._on_master(next(filter(None, known), None))


def _is_enough(waiting: dict[RegistrationLink, int]) -> bool:
    """Whether a caller need not wait any longer.

    That is when none is late, or only such as are known not to answer, and not all are.

    Args:
      waiting: which attempt of each link the caller waits for.
    """
    late = [link for link, asked in waiting.items() if link.done < asked]
    return not late or (len(late) < len(waiting) and not any(link.is_answering for link in late))
