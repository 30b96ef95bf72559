"""What a name server with one broker offers to a test or a benchmark, whoever made it."""

from __future__ import annotations

from typing import Protocol


class Cluster(Protocol):
    """One name server and one broker on the loopback address, in processes of their own.

    Made stopped; `start` and `start_broker` return when clients can send. Ports and folders stay
    the same over restarts. Not for several threads at once.
    """

    label: str
    """What it is, for reports: "trocket" or "apache-5.5.0"."""

    @property
    def namesrv_address(self) -> str:
        """HOST:PORT of the name server."""

    @property
    def broker_address(self) -> str:
        """HOST:PORT of the broker."""

    @property
    def pids(self) -> list[int]:
        """All processes, the broker's first."""

    def start(self) -> None:
        """Start what is not running and wait until it is ready. Raises PeerError."""

    def start_broker(self) -> None:
        """Start the broker again after `stop_broker` or `kill_broker`. Raises PeerError."""

    def stop_broker(self) -> None:
        """Stop the broker in an orderly way (SIGTERM) and wait. Raises PeerError."""

    def kill_broker(self) -> None:
        """Kill the broker (SIGKILL) and wait until it is gone."""

    def close(self) -> None:
        """Stop everything that runs."""
