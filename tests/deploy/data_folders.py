"""A data folder that versions of trocket hand over: what is put in, and what must be in it later.

As a program it records the folder of an earlier version, from the sources of that commit:

    python -m tests.deploy.data_folders a1c936ec tests/deploy/recorded/a1c936ec.tar.gz
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trocket import Message
from trocket.blocking import Admin, Producer, PullConsumer
from trocket.cli.main import main

ROOT = Path(__file__).resolve().parents[2]

EARLIER = "a1c936ec"
"""The commit whose data folders today's version takes over, and gives back."""

TIMEOUT_S = 60.0
"""For a process to start or end, and for a message to be delivered; only a broken one takes it."""

CONFIG = """\
brokerName=broker-a
brokerIP1=127.0.0.1
autoCreateTopicEnable=false
# Small files, so that a recorded folder is small.
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=20000
maxHashSlotNum=500
maxIndexNum=2000
# Level 1 ends while the next version runs, level 2 long before a recorded folder is opened.
messageDelayLevel=8s 1m
"""

TOPIC, DELAYED, GROUP = "Orders", "Reminders", "billing"
QUEUES = 3
RETRY_MAX = 7
"""A setting of the group that is not the default."""

MESSAGES = 12
"""That each version sends at once."""

PORTS = ("--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0")


class Sent(msgspec.Struct, frozen=True):
    """A message in its queue."""

    queue_id: int
    offset: int
    body: str
    key: str


class Contents(msgspec.Struct):
    """What a folder holds.

    Attributes:
      sent: the messages of TOPIC.
      delayed: the bodies of the messages of DELAYED, delivered or not.
      committed: the offset that GROUP has committed of each queue of TOPIC.
    """

    sent: list[Sent] = []
    delayed: list[str] = []
    committed: dict[int, int] = {}


class Servers:
    """`trocket up` of one version, with a data folder; a context manager.

    Args:
      sources: the folder that holds the version's package; None: today's.

    Attributes:
      url: the name server's address.
      error: the log, once it has stopped.
    """

    def __init__(self, home: Path, sources: Path | None = None) -> None:
        self._home, self._sources = home, sources
        self.url = self.error = ""

    def __enter__(self) -> Servers:
        self._home.mkdir(exist_ok=True)
        config = self._home / "broker.conf"
        config.write_text(CONFIG, encoding="ascii")
        words = ("up", "--home", str(self._home), "-c", str(config), *PORTS, "--json")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trocket.cli.main", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._home,
            env=environment_of(self._sources),
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        facts = json.loads(line) if line else {}
        if not facts.get("ready"):
            self._process.kill()
            raise AssertionError(self._process.communicate()[1])
        self.url = facts["namesrv"]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self.error = self._process.communicate(timeout=TIMEOUT_S)[1]
        finally:
            self._process.kill()
        assert self._process.returncode == 0, self.error
        assert "Traceback" not in self.error, self.error
        assert not (self._home / "store" / "abort").exists()


def environment_of(sources: Path | None) -> dict[str, str]:
    """The environment in which Python imports a version."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    if sources is not None:
        # Its extension is not built, and that of another version must not be taken.
        environment |= {"PYTHONPATH": str(sources), "TROCKET_PURE": "1"}
    return environment


def has_history(commit: str) -> bool:
    """Whether the checkout has a commit, with its files."""
    git = ("git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{tree}}")
    try:
        return subprocess.run(git, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def extract_sources(commit: str, folder: Path) -> Path:
    """Write the package of a commit into a folder, for `PYTHONPATH`; return the folder."""
    package = folder / "trocket"
    package.mkdir(parents=True)
    # Not the tests and pages: half of the files.
    parts = (":!tests", ":!docs", ":!interop", ":!bench", ":!examples")
    git = ("git", "-C", str(ROOT), "archive", "--format=tar", commit, "--", ".", *parts)
    with (
        subprocess.Popen(git, stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as archive,
    ):
        archive.extractall(package, filter="data")
    assert process.returncode == 0
    return folder


def imported_from(sources: Path) -> Path:
    """The folder of the package that a process with these sources imports."""
    program = "import trocket; print(trocket.__path__[0])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment_of(sources),
        cwd=sources,
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


def create(url: str) -> None:
    """Make the topics and the group."""
    with Admin(url) as admin:
        admin.create_topic(TOPIC, QUEUES, order=True)
        admin.create_topic(DELAYED, 1)
        admin.create_group(GROUP, retry_max_times=RETRY_MAX)


def add(url: str, contents: Contents, name: str, delays: Mapping[str, dict[str, Any]]) -> None:
    """Send messages, commit offsets, and last of all send delayed messages.

    Args:
      name: begins the bodies and keys.
      delays: for the body of each delayed message, the arguments of Message.
    """
    with Producer(url) as producer:
        for number in range(MESSAGES):
            body, key = f"{name} {number}", f"{name}-{number}"
            result = producer.send(Message(TOPIC, body, keys=(key,), tags="new"))
            contents.sent.append(Sent(result.queue.queue_id, result.queue_offset, body, key))
        with PullConsumer(url, group=GROUP) as consumer:
            queues = consumer.queues(TOPIC)
            ends = {queue: consumer.end_offset(queue) for queue in queues}
            # Not the ends themselves, at which a group without offsets might begin.
            consumer.commit({queue: end - 1 for queue, end in ends.items()})
        contents.committed = {queue.queue_id: end - 1 for queue, end in ends.items()}
        for body, delay in delays.items():
            producer.send(Message(DELAYED, body, **delay))
            contents.delayed.append(body)


def check(url: str, contents: Contents) -> None:
    """A broker has all of the contents; delayed messages once they are due, and once only."""
    with Admin(url) as admin:
        (topic,) = admin.topic(TOPIC).brokers
        assert (topic.read_queues, topic.write_queues, topic.order) == (QUEUES, QUEUES, True)
        (settings,) = admin.group(GROUP).settings.values()
        assert settings.retry_max_times == RETRY_MAX
        for sent in contents.sent:
            (found,) = admin.messages_by_key(TOPIC, sent.key)
            assert found.text == sent.body
    with PullConsumer(url, group=GROUP) as consumer:
        queues = {queue.queue_id: queue for queue in consumer.queues(TOPIC)}
        assert {number: consumer.committed(each) for number, each in queues.items()} == (
            contents.committed
        )
    places = {(each.queue_id, each.offset): each.body for each in contents.sent}
    assert read(url, TOPIC, len(places)) == places
    assert sorted(read(url, DELAYED, len(contents.delayed)).values()) == sorted(contents.delayed)


def read(url: str, topic: str, count: int) -> dict[tuple[int, int], str]:
    """The bodies of `count` messages of a topic, by queue id and offset."""
    bodies: dict[tuple[int, int], str] = {}
    with PullConsumer(url, group="reader", auto_commit=False) as consumer:
        queues = consumer.queues(topic)
        consumer.assign(queues)
        for queue in queues:
            consumer.seek(queue, 0)
        while len(bodies) < count:
            received = consumer.poll(timeout_s=TIMEOUT_S)
            assert received, f"only {bodies} of {topic} arrived"
            bodies |= {(each.queue.queue_id, each.queue_offset): each.text for each in received}
    return bodies


def delivered(home: Path) -> int:
    """How many of the messages of DELAYED are in its queue, in a folder without a broker."""
    out = home / "delayed.jsonl"
    assert main(["store", "export", str(home / "store"), "--topic", DELAYED, "-o", str(out)]) == 0
    return len(out.read_text("utf-8").splitlines())


def record(commit: str, path: Path) -> None:
    """Write the folder of a version, and what it holds, into an archive."""
    with tempfile.TemporaryDirectory() as name:
        sources = extract_sources(commit, Path(name, "sources"))
        home, contents = Path(name, "home"), Contents()
        with Servers(home, sources) as servers:
            create(servers.url)
            delays = {"by level": {"delay_level": 2}, "by a timer": {"delay_s": 60}}
            add(servers.url, contents, commit, delays)
        (home / "contents.json").write_bytes(msgspec.json.encode(contents))
        with tarfile.open(path, "w:gz", compresslevel=9) as archive:
            archive.add(home, ".")


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]))
