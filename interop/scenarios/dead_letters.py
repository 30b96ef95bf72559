"""A group's dead letters, as a broker has them."""

from __future__ import annotations

import threading
import time
from typing import Final

from ..peer import Cluster
from ..wire import WireClient
from .broker_view import stored_bodies

TIMEOUT_S: Final = 20.0
PAUSE_S: Final = 0.5


def dead_letters(cluster: Cluster, group: str) -> list[str]:
    """The bodies in a group's dead letter topic, as soon as there are any, or none in time.

    Raises: PeerError: the broker does not answer.
    """
    topic = f"%DLQ%{group}"
    deadline_s = time.monotonic() + TIMEOUT_S
    pause = threading.Event()
    with WireClient(cluster.broker_address) as wire:
        while True:
            if topic in wire.topics():
                found = stored_bodies(wire, topic, 1)
                if found:
                    return found
            if time.monotonic() > deadline_s:
                return []
            pause.wait(PAUSE_S)
