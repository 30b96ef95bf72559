"""A consumer with a class filter on plain sockets: quick, and it checks every answer.

It does what RocketMQ's do: it uploads its class, pulls at any filter server of the route, and when
that fails looks the route up again and goes on from where it was.
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
from collections import Counter
from collections.abc import Callable

from trocket.interop.process import PeerError
from trocket.interop.wire import PULL_COUNT, PULL_MESSAGE, PULL_RETRY_IMMEDIATELY, WireClient
from trocket.remoting.message_codec import decode_messages

from .consumption import Consumption
from .material import KEEP_FIFTH, KEEP_FIFTH_SOURCE, QUEUE_COUNT, TOPIC
from .sites import Site, upload

GROUP = "wire"
SUSPEND, CLASS_FILTER = 0x2, 0x8
SUSPEND_S = 0.2
"""How long the broker holds a pull that finds nothing."""
SUSPEND_MS = int(1000 * SUSPEND_S)
TIMEOUT_S = 40.0
"""Of an answer; a class may be compiled for 30 s."""
PAUSE_S = 0.05
PULL_NOT_FOUND = 19
SYSTEM_ERROR = 1

_PORT = re.compile(r"127\.0\.0\.1:\d+ ?")
"""Another with each filter server."""


class WireConsumer:
    """Consumes TOPIC by KEEP_FIFTH from its beginning, one pull at a time.

    Args:
      site: where.
      choose: which of several filter servers.

    Attributes:
      seen: what came.
      failures: what went wrong on the way, and how often.
    """

    def __init__(self, site: Site, choose: random.Random) -> None:
        self._site = site
        self._choose = choose
        self._offsets = [0] * QUEUE_COUNT
        self._queue = 0
        self._connection: WireClient | None = None
        self._pause = threading.Event()
        self.seen = Consumption()
        self.failures: Counter[str] = Counter()

    @property
    def pids(self) -> list[int]:
        """It has no process."""
        return []

    def go_on(self, while_pulling: Callable[[], None] = lambda: None) -> None:
        """One pull, or what is to be done before it can be.

        Args:
          while_pulling: called when the request is on its way, and its answer not read.
        """
        self._queue = (self._queue + 1) % QUEUE_COUNT
        done = False
        try:
            wire = self._connected()
            opaque = self._ask(wire)
            while_pulling()
            done = True
            answered, answer = wire.receive()
            assert answered == opaque, f"{answered} in place of {opaque}"
            self._take(answer.code, answer.remark, answer.fields, answer.body)
        except PeerError as error:
            self.failures[_PORT.sub("", str(error).splitlines()[0])[:80]] += 1
            self._disconnect()
            if not done:
                while_pulling()
            self._pause.wait(PAUSE_S)

    def _connected(self) -> WireClient:
        """Raises: PeerError: there is no filter server, or it does not take the class."""
        if self._connection is None:
            addresses = self._site.filter_servers()
            if not addresses:
                raise PeerError("now no filter server")
            self._connection = WireClient(self._choose.choice(addresses), timeout_s=TIMEOUT_S)
            self._upload()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _upload(self) -> None:
        assert self._connection is not None
        refused = upload(self._connection, KEEP_FIFTH, KEEP_FIFTH_SOURCE, group=GROUP, topic=TOPIC)
        if refused:
            raise PeerError(f"upload {refused}")

    def _ask(self, wire: WireClient) -> int:
        return wire.send_request(
            PULL_MESSAGE,
            {
                "consumerGroup": GROUP,
                "topic": TOPIC,
                "queueId": self._queue,
                "queueOffset": self._offsets[self._queue],
                "maxMsgNums": PULL_COUNT,
                "sysFlag": SUSPEND | CLASS_FILTER,
                "commitOffset": 0,
                "suspendTimeoutMillis": SUSPEND_MS,
                "subVersion": 0,
            },
        )

    def _take(self, code: int, remark: str, fields: dict[str, str], body: bytes) -> None:
        if code == SYSTEM_ERROR:
            raise PeerError(f"refused {remark}")
        assert code in (0, PULL_RETRY_IMMEDIATELY, PULL_NOT_FOUND), f"{code}: {remark}"
        messages = decode_messages(body)
        before, after = self._offsets[self._queue], int(fields["nextBeginOffset"])
        seen = f"{code} from {before} to {after} with {len(messages)} messages"
        assert bool(messages) == (code == 0), seen
        assert all(before <= message.queue_offset < after for message in messages), seen
        # A pull that finds nothing stays where it is: a message in between would be passed over.
        assert after > before if code != PULL_NOT_FOUND else after == before, seen
        self.seen.add(*(int(message.body) for message in messages))
        self._offsets[self._queue] = after

    def troubles(self) -> str:
        """What went wrong meanwhile, for people."""
        return ", ".join(f"{what} {count}x" for what, count in sorted(self.failures.items()))

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._disconnect()
