"""Registrar: keeps the broker and its topics registered with its name servers.

Each name server has a separate link and task, so one that does not answer delays no other. Callers
that wait for the registration of a topic are not delayed for long, either: a hung name server costs
the first caller REGISTRATION_WAIT_S, and later ones nothing while another name server answers. If
none has answered yet, callers wait for FIRST_ANSWER_WAIT_S, and the broker's start for
registerBrokerTimeoutMills, because clients cannot find a topic that no name server knows.

Java counterpart: BrokerController.registerBrokerAll of 5.3.3, which waits for the slowest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import trio

from ...common.supervision import FailureLog, Supervisor, contained
from ...remoting.bodies import TopicConfig
from ...remoting.client import RemotingClient
from ...remoting.errors import RemotingError
from ..settings.config import MASTER_ID, BrokerConfig
from ..tables.topic_config_manager import TopicConfigManager
from .registration_answer import Master
from .registration_link import RegistrationLink
from .registration_request import BrokerIdentity, is_one_part

logger = logging.getLogger(__name__)

REGISTRATION_WAIT_S = 1.0
"""How long a request waits for a late name server when another one has answered, or when none of
them answered the last time. RocketMQ: registerBrokerTimeoutMills, 24 s."""

FIRST_ANSWER_WAIT_S = 2.5
"""How long a request waits for the first answer; a name server on a busy machine may take more than
a second. Clients give up after 3 to 5 s."""

MASTER_UNKNOWN_PERIOD_S = 10.0
"""Between the registrations of a slave without a master, which it learns from the answers.
RocketMQ: the usual period, up to 30 s."""


def _ignore_master(_: Master | None) -> None:
    pass  # for brokers that are masters


class Registrar:
    """Keeps the broker registered with its name servers.

    Lifecycle: `run` owns the tasks, in the controller's nursery; `unregister_all` after its end.

    Args:
      config: the broker's; read at every registration.
      client: running.
      topics: the table to register; the order flags in the answers are stored in it.
      identity: returns the broker's part of a registration; called from `run` on.
      on_master: for slaves: called after each answer with the master that the first name server
        with one names; None: no name server knows a master.
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
        """Register now, every period, and after every change; until cancelled.

        It reports "started" after the first registration, for which it waits as `register_all`
        does.
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
            # From here on requests register their topics, too.
            self._nursery = nursery
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    @property
    def is_registered(self) -> bool:
        """Whether a name server answered the last registration with it."""
        return any(link.is_registered for link in self._links)

    @property
    def refusals(self) -> dict[str, str]:
        """What the name servers say that refused the last registration, by address."""
        return {link.address: link.refusal for link in self._links if link.refusal}

    def _period_s(self) -> float:
        wants_master = self._config.broker_id != MASTER_ID and not self._masters
        return MASTER_UNKNOWN_PERIOD_S if wants_master else self._config.register_period_s

    def changed(self) -> None:
        """Schedule a registration, because the list of filter servers changed."""
        for link in self._links:
            link.want()

    def topics_changed(self, topics: Sequence[TopicConfig]) -> None:
        """Schedule the registration of changed topics.

        Args:
          topics: new or changed topics; empty: topics were deleted. Only a table that is sent in
            one part can make a name server drop a topic, if its configuration allows it.
        """
        count = len(self._topics.topic_config_table)
        deletes = not topics and is_one_part(self._config, count)
        for link in self._links:
            link.want((topic.topic_name for topic in topics), whole=deletes)

    async def register_all(self) -> None:
        """Register the whole table with every name server, and wait as `register_topics` does."""
        await self._register((), whole=True)

    async def register_topics(self, topics: Iterable[str] = ()) -> None:
        """Register topics and other pending changes, and wait until the name servers know them.

        The wait is limited as the module's text describes; the registration with a late name server
        continues in the background. Failures are logged, not raised.

        Args:
          topics: names; these are registered even if the name servers know them.
        """
        await self._register(topics, whole=False)

    def when_registered(self, topic: str, callback: Callable[[], None]) -> bool:
        """Call back when the name servers know a topic whose change is being registered.

        The wait is limited as for `register_topics`.

        Args:
          callback: called from a task of the registrar.
        Returns: False if there is no registration to wait for, and `callback` will not be called.
        """
        if self._nursery is None or not self._links:
            return False
        self._nursery.start_soon(self._call_when_registered, topic, callback)
        return True

    async def _call_when_registered(self, topic: str, callback: Callable[[], None]) -> None:
        what = f"waiting until the name servers know topic {topic}"
        try:
            with contained(self._failures, what, "The request is answered without waiting"):
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
        """Wait until the name servers have answered, or their time is over.

        Args:
          waiting: the number of the registration to wait for, by link.
          first_answer_s: the limit while none has answered, but one is expected to.
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
            # A large table takes longer, but then there is an answer to each part: not silent.
            is_silent = trio.current_time() - link.heard_s > REGISTRATION_WAIT_S / 2
            if link.done < asked and is_silent:
                link.note_silence(f"no answer to a registration within {wait_s:g} s")

    def _note_progress(self) -> None:
        self._progress.set()
        self._progress = trio.Event()

    async def unregister_all(self) -> None:
        """Unregister from every name server."""
        async with trio.open_nursery() as nursery:
            for link in self._links:
                nursery.start_soon(self._unregister, link)

    async def _unregister(self, link: RegistrationLink) -> None:
        what = f"unregistering from name server {link.address}"
        with contained(self._failures, what, "It may list this broker for 2 more minutes"):
            try:
                await link.unregister()
            except RemotingError as error:
                logger.warning(
                    "name server %(name_server)s: %(error)s. The broker could not unregister "
                    "there; the name server drops it when the connection closes, or after 2 "
                    "minutes",
                    {"name_server": link.address, "error": error},
                )

    def _note_master(self, address: str, master: Master | None) -> None:
        """Choose a slave's master: that of the first name server that knows one."""
        if master is None:
            self._masters.pop(address, None)
        else:
            self._masters[address] = master
        # Name servers may differ for a while. For one that does not answer, its last answer is
        # used, because the master may still run; a restarted one knows no master until it has
        # registered.
        known = map(self._masters.get, self._config.namesrv_addresses)
        self._on_master(next(filter(None, known), None))


def _is_enough(waiting: dict[RegistrationLink, int]) -> bool:
    """Whether a caller can stop waiting.

    That is when no name server is late, or when some have answered and the late ones did not answer
    the last time, either.

    Args:
      waiting: the number of the registration to wait for, by link.
    """
    late = [link for link, asked in waiting.items() if link.done < asked]
    return not late or (len(late) < len(waiting) and not any(link.is_answering for link in late))
