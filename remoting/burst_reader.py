"""BurstReader: reads the bursts of a connection as events, and has runs of requests served whole.

A burst is what one read of the socket returns: often many requests, and of the same kind. A server
may serve some kinds of them from their bytes, many at once, without a command or an event for each:
pulls, and runs of plain sends or of transactions. The rest is decoded. So a burst passes these
stations, and each takes what it knows::

    bytes of the socket
      |  FrameDecoder.joined        puts the rest of the last burst before them
      v
    [pull pull][ask ask][send send send][ask]
      |           |           |           |
      |           |           |           '-- FrameDecoder.decode, then Session.events
      |           |           '-- RunProcessor.serve: a run, in any place
      |           '-- FrameDecoder.decode: a command each, then Session.events
      '-- RunProcessor.take_pulls: at the beginning only

The decoder and the session know nothing of runs: the decoder only can stop where one may begin,
and continue at any position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from .codec import RemotingCommand
from .session import Event, State

if TYPE_CHECKING:
    from .channel import CallWaiter, Channel, Processor

# A global, because a look-up of an enum's member is slow, and every burst needs this one.
_OPEN: Final = State.OPEN


class RunProcessor(NamedTuple):
    """Serves runs of usual requests among the received bytes, before they are decoded.

    Attributes:
      serve: (data, position of the first one, frame_size_max, channel, counts) -> the size of the
        run's frames, whose numbers are added to the counts by code; 0: none, and nothing was
        changed.
      replaced: the processors of these requests, by code. While a server's table has others, such
        as those that the embedded broker's faults wrap, no run is served.
      take_pulls: (data, position, frame_size_max, channel, commands) -> the position after the
        pulls that begin there; those that are not held are appended to the commands. None: all
        pulls are decoded.
    """

    serve: Callable[[bytes, int, int, Channel, dict[int, int]], int]
    replaced: Mapping[int, Processor]
    take_pulls: Callable[[bytes, int, int, Channel, list[RemotingCommand]], int] | None = None


class BurstReader:
    """The received bytes of one connection.

    Args:
      channel: has the connection's session.
      processors: the server's table, by request code; it may change.
      runs: None: all requests become events.

    Attributes:
      run_counts: how many requests of the last burst were served as runs, by code.
      has_taken: whether requests of the last burst were taken without becoming events.
    """

    __slots__ = (
        "_channel",
        "_decoder",
        "_processors",
        "_replaced",
        "_runs",
        "_session",
        "has_taken",
        "run_counts",
    )

    def __init__(
        self, channel: Channel, processors: Mapping[int, Processor], runs: RunProcessor | None
    ) -> None:
        self._channel = channel
        self._session = channel.session
        self._decoder = channel.session.decoder
        self._processors = processors
        self._runs = runs
        self._replaced = () if runs is None else tuple(runs.replaced.items())
        self.run_counts: dict[int, int] = {}
        self.has_taken = False

    def read(self, data: bytes) -> Iterator[Sequence[Event[CallWaiter]]]:
        """Process received bytes; yield their events in the peer's order.

        The events before a run are yielded first, and the run is served when the next events are
        asked for: so requests are served in the order in which they came.

        It never raises because of received bytes; see `Session.receive_data`.
        """
        session, runs = self._session, self._runs
        counts: dict[int, int] = {}
        self.run_counts, self.has_taken = counts, False
        if runs is None or not self._has_processors_of_runs():
            events = session.receive_data(data)
            if events:
                yield events
            return
        if session.state is not _OPEN:
            return
        decoder, channel = self._decoder, self._channel
        data = decoder.joined(data)
        size, frame_size_max = len(data), decoder.frame_size_max
        commands: list[RemotingCommand] = []
        position = 0
        if runs.take_pulls is not None:
            position = runs.take_pulls(data, 0, frame_size_max, channel, commands)
            self.has_taken = position > 0
        while position < size:
            position = decoder.decode(data, position, commands, leaves_runs=True)
            if position == size:
                break
            if commands:
                yield session.events(commands)
                commands = []
            run_size = runs.serve(data, position, frame_size_max, channel, counts)
            if run_size:
                position += run_size
                self.has_taken = True
            else:  # a request that is served alone, or the store has no room in this file
                position = decoder.decode_one(data, position, commands)
        # Without commands, too: it notes a fault, and the size of an incomplete frame.
        events = session.events(commands)
        if events:
            yield events

    def _has_processors_of_runs(self) -> bool:
        """Whether the processors that runs replace are those of this connection."""
        process_of = self._processors.get
        for code, process in self._replaced:  # noqa: SIM110 - half the time of `all`
            if process_of(code) is not process:
                return False
        return True
