"""Official Java producers and push consumers, driven over stdin and stdout.

The Java side is interop/clients/java/src/Peer.java, whose header lists commands and events. One JVM
holds any number of producers and consumers, each with an id.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from . import class_archive
from .maven import JAVA_OPENS, JAVA_SMALL, compile_java
from .process import LineProcess, PeerError

START_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 30.0
REBALANCE_INTERVAL_MS = 1000
"""The client's 20 s would pass before it consumes a topic that is made after it has started. That
brokers notify the members of a group at once is seen by the scenarios, which keep the 20 s."""


@dataclass(frozen=True, slots=True)
class MessageSeen:
    """One message as a producer or a consumer of the official client reported it.

    `by` is the id of that producer or consumer; `key` identifies the body over all attempts to
    send it ("p1-17"); `unique` is the client's UNIQ_KEY of the attempt. For a oneway send
    `queue_id` and `queue_offset` are unknown: -1.
    """

    by: str
    topic: str
    key: str
    crc: int
    unique: str
    queue_id: int
    queue_offset: int
    tags: str

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, queue id and queue offset."""
        return self.topic, self.queue_id, self.queue_offset


class JavaPeer:
    """A JVM with the official client of one version. Use it as a context manager.

    Reports are collected in `acknowledged`, `sent_oneway`, `received` (by consumer id),
    `keys_by_group` (distinct keys by consumer group) and `failure_texts` (failed attempts); read
    them inside `wait`, or when nothing is running.

    Args:
      version: of rocketmq-client, such as "4.9.7"; missing jars and classes are fetched and built.
      folder: for its logs.
    Raises: PeerError: it could not be built or started.
    """

    def __init__(self, version: str, folder: Path, *, options: tuple[str, ...] = ()) -> None:
        self.acknowledged: list[MessageSeen] = []
        self.sent_oneway: list[MessageSeen] = []
        self.received: dict[str, list[MessageSeen]] = {}
        self.failure_texts: list[str] = []
        self.keys_by_group: dict[str, set[str]] = {}
        self._groups: dict[str, str] = {}
        self._states: dict[str, str] = {}
        self._errors: list[str] = []
        class_path = compile_java(version)
        command = ["java", *JAVA_SMALL, *JAVA_OPENS, f"-Duser.home={folder}"]
        command += [f"-Drocketmq.client.rebalance.waitInterval={REBALANCE_INTERVAL_MS}", *options]
        self._command = class_archive.with_archive([*command, "-cp", class_path, "Peer"])
        name = f"client-{version}"
        self._process = LineProcess(self._command, folder=folder, name=name, on_line=self._on_line)
        self._wait_state("", "hello", START_TIMEOUT_S)

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self._process.pid

    def __enter__(self) -> JavaPeer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            class_archive.dump(self._command, self._process.pid)
        self._process.kill()

    def _on_line(self, line: str) -> None:
        # The 4.9 client's logging may write to stdout too.
        if not line.startswith('{"event":'):
            return
        event = json.loads(line)
        kind = event["event"]
        by = event.get("id", "")
        if kind in ("ack", "sent", "message"):
            seen = MessageSeen(
                by,
                event["topic"],
                event["key"],
                event["crc"],
                event["unique"],
                event.get("queueId", -1),
                event.get("queueOffset", -1),
                event["tags"],
            )
            if kind == "ack":
                self.acknowledged.append(seen)
            elif kind == "sent":
                self.sent_oneway.append(seen)
            else:
                self.received[by].append(seen)
                self.keys_by_group[self._groups[by]].add(seen.key)
        elif kind == "retry":
            self.failure_texts.append(event["error"])
        elif kind == "error":
            self._errors.append(f"{by}: {event['error']}")
        else:
            self._states[by] = kind

    def _send_command(self, **fields: object) -> None:
        self._process.write_line(json.dumps(fields))

    def _wait_state(self, by: str, state: str, timeout_s: float) -> None:
        self.wait(lambda: self._states.get(by) == state, timeout_s=timeout_s, what=f"{by} {state}")

    def wait(self, ready: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Wait until `ready` is true; it is called after every report, so keep it cheap.

        Raises: PeerError: the JVM ended, the time passed, or a command failed in it.
        """

        def outcome() -> bool | None:
            return True if self._errors or ready() else None

        self._process.wait(outcome, timeout_s=timeout_s, what=what)
        if self._errors:
            raise PeerError(f"{self._process.name}: {'; '.join(self._errors)}")

    def create_topic(
        self, topic: str, *, namesrv_address: str, broker_address: str, queue_count: int
    ) -> None:
        """Create a topic on one broker (request code 17).

        Raises: PeerError: the broker refused it or did not answer.
        """
        by = f"create-{topic}"
        self._send_command(
            op="create_topic",
            id=by,
            addr=broker_address,
            namesrv=namesrv_address,
            topic=topic,
            queues=queue_count,
        )
        self._wait_state(by, "created", ANSWER_TIMEOUT_S)

    def start_sending(
        self,
        by: str,
        topic: str,
        *,
        namesrv_address: str,
        mode: str,
        message_count: int,
        thread_count: int = 1,
        batch_count: int = 32,
        size_bytes: int = 128,
        keys: bool = False,
        tags: str = "",
        rate_per_s: float = 0.0,
        deadline_s: int = 120,
    ) -> None:
        """Start a new producer; it sends until all is acknowledged or the deadline passes.

        Args:
          by: its id, also the first part of every key.
          mode: "sync", "async", "oneway" or "batch".
          tags: separated by commas, used in turn; empty for none.
          rate_per_s: messages per second at most; 0 for no limit.
        Raises: PeerError: the JVM has ended.
        """
        self._send_command(
            op="send",
            id=by,
            namesrv=namesrv_address,
            group=f"producers-{by}",
            topic=topic,
            mode=mode,
            count=message_count,
            threads=thread_count,
            batch=batch_count,
            size=size_bytes,
            keys=str(keys).lower(),
            tags=tags,
            rate=rate_per_s,
            deadline_s=deadline_s,
        )

    def wait_sent(self, *bys: str, timeout_s: float) -> None:
        """Wait until these producers have finished. Raises: PeerError: the timeout passed."""

        def all_done() -> bool:
            return all(self._states.get(by) == "done" for by in bys)

        self.wait(all_done, timeout_s=timeout_s, what=f"the end of {', '.join(bys)}")

    def start_consuming(
        self,
        by: str,
        topics: list[str],
        *,
        namesrv_address: str,
        group: str,
        expression: str = "*",
        thread_count: int = 4,
        cached_max: int = 0,
        hold_after: int = 0,
    ) -> None:
        """Start a push consumer that begins at each queue's start.

        Args:
          cached_max: cached messages of a queue at which it stops pulling; 0: its default.
          hold_after: messages to consume before it blocks until `resume`; 0: no limit.
        Raises: PeerError: it could not be started.
        """
        self.received[by] = []
        self._groups[by] = group
        self.keys_by_group.setdefault(group, set())
        self._send_command(
            op="consume",
            id=by,
            namesrv=namesrv_address,
            group=group,
            topic=",".join(topics),
            expression=expression,
            threads=thread_count,
            cached=cached_max,
            hold_after=hold_after,
        )
        self._wait_state(by, "consuming", ANSWER_TIMEOUT_S)

    def resume(self, by: str) -> None:
        """Let a consumer blocked by `hold_after` continue. Raises: PeerError: the JVM has ended."""
        self._send_command(op="resume", id=by)

    def stop_consuming(self, by: str) -> None:
        """Shut a push consumer down; it unregisters. Raises: PeerError: it did not answer."""
        self._send_command(op="stop", id=by)
        self._wait_state(by, "stopped", ANSWER_TIMEOUT_S)

    def received_by_group(self, group: str) -> list[MessageSeen]:
        """All messages that the consumers of one group received, duplicates included."""
        return [
            seen for by, of in self._groups.items() if of == group for seen in self.received[by]
        ]

    def tail(self) -> str:
        """The JVM's last lines and its last failed sends, for an error text."""
        failures = "\n".join(self.failure_texts[-5:])
        return f"{self._process.tail()}\nlast failures:\n{failures}"
