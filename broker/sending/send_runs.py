"""Runs of sends: plain sends and batches one after the other in a burst, served by the C extension.

`SendMessageProcessor` serves all others, and is the specification of these.
"""

from __future__ import annotations

from typing import Final

from ...remoting.channel import Channel
from ...remoting.request_codes import RequestCode
from ...remoting.request_times import RUN_CODE
from ...store.writing.run_appender import RunAppender
from ..puts.added_properties import AddedProperties
from ..puts.send_turn import SendTurn
from .send_topics import SendTopics

BATCH_CODE: Final = int(RequestCode.SEND_BATCH_MESSAGE)
RUN_CODES: Final = (
    int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_MESSAGE_V2), BATCH_CODE,
)  # fmt: skip


class SendRunProcessor:
    """Stores runs of plain sends and batches, and has the turn answer them.

    Args:
      topics: of the broker, which accepts messages for ordered topics, too.
      added: the properties that the broker adds to each message.
    """

    def __init__(
        self, runs: RunAppender, turn: SendTurn, topics: SendTopics, added: AddedProperties
    ) -> None:
        self._append = runs.append
        runs.sends.is_judged = True
        self._turn = turn
        self._runs, self._topics, self._added = runs, topics, added
        self.settings_changed()

    def settings_changed(self) -> None:
        """Make the rules of runs again; call it after that of the other parts."""
        turn = self._turn
        self._is_read_only = self._topics.is_read_only
        self._rules = self._runs.rules(
            self._topics.table,
            self._topics.checked,
            added=self._added.first,
            store_host=turn.store_host,
            id_prefix=turn.id_prefix,
            answer_parts=turn.answer_parts,
            json_answer_parts=turn.json_answer_parts,
        )

    def process_run(
        self,
        data: bytes,
        position: int,
        frame_size_max: int,
        channel: Channel,
        counts: dict[int, int],
    ) -> int:
        """Serve the run at a position of received bytes; see `RunProcessor.serve`."""
        turn = self._turn
        if self._is_read_only:  # each send is checked, one by one
            return 0
        if channel is not turn.channel and turn.is_overloaded:  # each send is refused, one by one
            return 0
        run = self._append(self._rules, data, position, frame_size_max, channel.remote_host)
        if run is None:
            return 0
        # Only now: other frames may begin no turn.
        turn.begin(channel)
        turn.accept_run(run)
        if run.batch_count < run.send_count:
            counts[RUN_CODE] = counts.get(RUN_CODE, 0) + run.send_count - run.batch_count
        if run.batch_count:
            counts[BATCH_CODE] = counts.get(BATCH_CODE, 0) + run.batch_count
        return run.size
