"""The official Java client of one version, with push consumers that have a class filter.

The Java side is interop/clients/java/filter/ClassFilter.java. One JVM holds any number of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trocket.interop import class_archive
from trocket.interop.maven import JAVA_OPENS, JAVA_SMALL, compile_java
from trocket.interop.process import LineProcess, PeerError

from .consumption import Consumption

STOP_TIMEOUT_S = 60.0


class JavaConsumers:
    """A JVM.

    Args:
      version: of rocketmq-client.
      folder: for its logs, and the sources that consumers upload.

    Attributes:
      consumptions: what each consumer got, by its id.
    Raises: PeerError: it could not be built or started.
    """

    def __init__(self, version: str, folder: Path) -> None:
        self.consumptions: dict[str, Consumption] = {}
        self._folder = folder
        self._states: dict[str, str] = {}
        self._errors: list[str] = []
        self._version = version
        # The same file for all versions, so the sources of the other programs are not needed.
        class_path = compile_java(version, folder="filter")
        command = ["java", *JAVA_SMALL, *JAVA_OPENS, f"-Duser.home={folder}"]
        self._command = class_archive.with_archive([*command, "-cp", class_path, "ClassFilter"])
        self._process = LineProcess(
            self._command,
            folder=folder,
            name=f"class-filter-{version}",
            on_line=self._on_line,
        )

    @property
    def pids(self) -> list[int]:
        """The one process."""
        return [self._process.pid]

    def _on_line(self, line: str) -> None:
        what, _, rest = line.partition(" ")
        by, _, text = rest.partition(" ")
        if what == "got":
            self.consumptions[by].add(int(text))
        elif what in ("consuming", "stopped"):
            self._states[by] = what
        elif what == "error":
            self._errors.append(f"{by}: {text}")

    def start(
        self,
        by: str,
        *,
        namesrv_address: str,
        topic: str,
        class_name: str,
        source: str = "",
        group: str = "",
        interval_s: float = 0.0,
    ) -> Consumption:
        """Begin to start a consumer, from the first message on.

        Args:
          by: its id.
          source: of the class; versions from 5.2 on leave it unread.
          group: by default the id.
          interval_s: between two looks at the route, heartbeats and commits; 0: what the client
            has.
        Returns: what it gets, from now on.
        """
        file = self._folder / f"{by}.java"
        file.write_text(source)
        seen = self.consumptions[by] = Consumption()
        interval = str(int(1000 * interval_s))
        words = ["consume", by, namesrv_address, group or by, topic, class_name, str(file)]
        self._process.write_line("\t".join([*words, interval]))
        return seen

    def wait(self, ready: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Wait until `ready` is true; it is asked again after every line.

        Raises: PeerError: the JVM ended, the time passed, or a consumer failed.
        """

        def outcome() -> bool | None:
            return True if self._errors or ready() else None

        self._process.wait(outcome, timeout_s=timeout_s, what=what)
        if self._errors:
            raise PeerError(f"{self._version}: {'; '.join(self._errors)}")

    def wait_count(self, by: str, count: int, *, timeout_s: float) -> None:
        """Wait for `count` distinct numbers at a consumer. Raises: PeerError: not in time."""
        seen = self.consumptions[by]
        self.wait(
            lambda: seen.distinct_count >= count, timeout_s=timeout_s, what=f"{count} for {by}"
        )

    def stop(self, by: str) -> None:
        """Shut a consumer down, which commits. Raises: PeerError: it did not answer."""
        self._process.write_line(f"stop\t{by}")
        self._wait_state(by, "stopped", STOP_TIMEOUT_S)

    def _wait_state(self, by: str, state: str, timeout_s: float) -> None:
        self.wait(lambda: self._states.get(by) == state, timeout_s=timeout_s, what=f"{by} {state}")

    def tail(self) -> str:
        """Its last lines, for an error text."""
        return self._process.tail()

    def close(self) -> None:
        """Kill it."""
        if self._process.running:
            class_archive.dump(self._command, self._process.pid)
        self._process.kill()
