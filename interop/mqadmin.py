"""Apache's mqadmin run against a loaded broker; its output is compared with that for Apache's.

All commands of one version run in one JVM (interop/clients/java/src/Admin.java). `REFERENCE` names
the Apache broker that the others are compared with; its session is run once for all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..common.clock import SystemClock
from ..common.topic_names import TRACE_TOPIC
from ..remoting.bodies.route import ClusterInfo
from ..remoting.request_codes import RequestCode
from . import class_archive
from .java_program import java_command
from .jobs import Job, OnCell
from .maven import JAVA_OPENS, JAVA_SMALL, compile_java, fetch_jars
from .mqadmin_outline import differences, failure, keys, outline
from .mqadmin_table import COMMANDS, Command, commands_of
from .peer import Cluster
from .peers import open_cluster, parse_peer
from .pop_wire import pop
from .process import LineProcess, PeerError
from .report.cells import Cell, Kind, Verdict, is_apaches
from .wire import Outgoing, WireClient, wait_for_route

REFERENCE = "apache-5.5.0"
KEYS = {"traceTopicEnable": True, "enablePropertyFilter": True, "brokerName": "broker-a"}

TOPIC = "mqadmin"
GROUP = "mqadmin_group"
ONLINE = "mqadmin_online"
PRODUCER = "mqadmin_producer"
CLIENT_ID = "192.0.2.1@mqadmin"
TRACED = "mqadmin_traced"
"""The topic and the group of a Java client that answers the broker's requests."""
RESENT = "mqadmin_resent"
"""A topic for a message to send again. It and `TRACED` have one queue: clients choose any."""
POPPED = "mqadmin_popped"
"""The topic and the group of messages that are popped and not acknowledged."""
INVISIBLE_MS = 3_600_000
TRACED_IP = "192.0.2.3"
QUEUE_COUNT = 2
MESSAGE_COUNT = 10
UNIQUE_ID = "7F000001000018B4AAC2{:012X}"

BY_FEATURE = {command.feature: command for command in COMMANDS}

HEART_BEAT = 34
GET_BROKER_CLUSTER_INFO = 106
NOT_SUPPORTED = 3
OF_NAMESRV = frozenset((100, 101, 102, 105, 106, 205, 206, 216, 318, 319, 327))
"""Request codes that mqadmin sends to the name server; all others go to the broker."""

START_TIMEOUT_S = 60.0
ROUTE_TIMEOUT_S = 20.0
COMMAND_TIMEOUT_S = 30.0
PROBE_TIMEOUT_S = 5.0
TRACE_TIMEOUT_S = 30.0
"""A Java client sends its traces every 5 s, and commits its offsets as often."""
POLL_S = 0.2
TRACES = (b"Pub\x01", b"SubBefore\x01", b"SubAfter\x01")
"""How the trace records of a message begin that was sent and consumed."""
LINES_SHOWN_MAX = 30
CUT_OFF = "timed out, or its JVM ended"
EOL = "\n"
NOT_OURS = "mqadmin would change settings of an external cluster"

LOGBACK = """<configuration><root level="OFF"/></configuration>
"""


@dataclass(frozen=True)
class CommandOutput:
    """The output of one command: `text` of both streams; `is_whole`: it ended in time."""

    text: str
    is_whole: bool
    seconds: float


@dataclass(frozen=True)
class Names:
    """The values of the placeholders of command lines, which outlines replace again."""

    topic: str
    group: str
    online: str
    producer: str
    broker: str
    broker_name: str
    cluster: str
    offset_id: str
    unique_id: str
    popped: str
    traced: str
    traced_client: str
    traced_id: str
    resent: str
    resent_id: str
    topics_file: str
    groups_file: str
    folder: str
    namesrv: str

    def arguments(self, command: Command, version: str) -> list[str]:
        """The command's arguments, with the name server's address at their end."""
        words = command.line_of(version).split()
        return [*(word.format_map(vars(self)) for word in words), "-n", self.namesrv]

    def placeholders(self) -> dict[str, str]:
        """Values that differ between two clusters, with their placeholders in outlines."""
        return {
            self.folder: "FOLDER",
            self.broker: "BROKER",
            self.namesrv: "NAMESRV",
            self.broker_name: "BROKER_NAME",
            self.cluster: "CLUSTER",
        }


@dataclass(frozen=True)
class Session:
    """The output of all commands of some versions with one broker.

    Attributes:
      printed: by version and command.
      unserved: by command, the request codes that our servers do not serve; a command may hide
        that it was refused and print as many lines.
    """

    names: Names
    printed: dict[tuple[str, str], CommandOutput] = field(default_factory=dict)
    unserved: dict[str, list[int]] = field(default_factory=dict)


def jobs(brokers: Sequence[str], versions: Sequence[str]) -> list[Job]:
    """A job for each broker; its cells are the commands of mqadmin in these versions.

    Raises: PeerError: a broker's name is unknown.
    """
    reference = _Reference(versions)
    return [_job(parse_peer(broker).name, versions, reference) for broker in brokers]


def _job(broker: str, versions: Sequence[str], reference: _Reference) -> Job:
    owed = tuple(
        Cell(Kind.MQADMIN, command.feature, f"mqadmin-{version}", broker, Verdict.SKIPPED)
        for version in versions
        for command in commands_of(version)
    )

    def play(cells: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
        if parse_peer(broker).kind == "external":
            for cell in cells:
                on_cell(replace(cell, detail=NOT_OURS))
            return
        apaches = reference.session(folder / "reference")
        own = apaches
        if broker != REFERENCE:
            own = play_session(broker, versions, folder / "own")
        for cell in cells:
            version = cell.client.removeprefix("mqadmin-")
            on_cell(_compare(cell, BY_FEATURE[cell.feature], version, own, apaches))

    name = f"mqadmin {', '.join(versions)} on {broker}"
    return Job(name, owed, play, group="what mqadmin prints with Apache's broker")


class _Reference:
    """The session with Apache's broker, run once by the first job that needs it."""

    def __init__(self, versions: Sequence[str]) -> None:
        self._versions = versions
        self._lock = threading.Lock()
        self._session: Session | None = None

    def session(self, folder: Path) -> Session:
        with self._lock:
            if self._session is None:
                self._session = play_session(REFERENCE, self._versions, folder)
            return self._session


# ---- verdicts ----------------------------------------------------------------------------


def _compare(cell: Cell, command: Command, version: str, own: Session, apaches: Session) -> Cell:
    mine = own.printed[version, command.feature]
    cell = replace(cell, seconds=mine.seconds, verdict=Verdict.PASSED, detail="")
    call = f"$ mqadmin {' '.join(own.names.arguments(command, version))}"
    why = failure(mine.text) if mine.is_whole else f"{CUT_OFF}: {mine.text.partition(EOL)[0]}"
    if is_apaches(cell.broker):
        # Apache's brokers are checked against the table: it says which commands must fail.
        is_as_expected = bool(why) == command.fails_in(version)
        if is_as_expected or (own is not apaches and not why):
            return replace(cell, detail=f"fails, as expected: {why}" if why else "")
        if own is not apaches:
            return replace(cell, verdict=Verdict.SKIPPED, detail=f"{cell.broker} cannot: {why}")
        frames = (call, *_shown(mine.text))
        detail = why or "it succeeded, but Apache's broker was expected to refuse it"
        return replace(cell, verdict=Verdict.FAILED, detail=detail, frames=frames)
    if command.refusal and mine.is_whole and command.refusal in why:
        return replace(cell, verdict=Verdict.QUIRK, detail=command.refused_by_ours)
    unserved = own.unserved.get(command.feature, [])
    if unserved and command.refused_by_ours and mine.is_whole:
        return replace(cell, verdict=Verdict.QUIRK, detail=command.refused_by_ours)
    if unserved:
        needs = ", ".join(f"{code} {_code_name(code)}" for code in unserved)
        detail = f"needs request code {needs}, not served yet"
        return replace(cell, verdict=Verdict.SKIPPED, detail=detail)
    expected, got = (_outline(command, version, session) for session in (apaches, own))
    if expected == got and mine.is_whole:
        return replace(cell, detail=f"fails as with Apache: {why}" if why else "")
    if command.other_keys and mine.is_whole and not why:
        # Another answer altogether is not excused: most of the lines must be Apache's, too.
        common, printed = keys(got) & keys(expected), keys(got)
        if command.fails_in(version) or 2 * len(common) > len(printed):
            return replace(cell, verdict=Verdict.QUIRK, detail=command.other_keys)
    lines = differences(expected, got)
    detail = "\n".join([why or f"output differs from that with {REFERENCE} (-)", *lines])
    frames = (call, *_shown(mine.text))
    return replace(cell, verdict=Verdict.FAILED, detail=detail, frames=frames)


def _outline(command: Command, version: str, session: Session) -> list[str]:
    printed = session.printed[version, command.feature]
    return outline(printed.text, command, session.names.placeholders())


def _code_name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return ""


def _shown(printed: str) -> list[str]:
    lines = printed.rstrip().splitlines()
    more = len(lines) - LINES_SHOWN_MAX
    return [*lines[:LINES_SHOWN_MAX], *([f"and {more} more lines"] if more > 0 else [])]


# ---- a session ---------------------------------------------------------------------------


def play_session(broker: str, versions: Sequence[str], folder: Path) -> Session:
    """Start a cluster, load it, and run every command of each version in turn.

    Raises: PeerError: the cluster or a JVM did not start, or the load was refused.
    """
    cluster = open_cluster(broker, folder / "cluster", KEYS)
    try:
        cluster.start()
        is_old = parse_peer(broker).version.startswith("4.")
        # A 4.x broker gets no trace of the consumer, and serves no pop.
        traces = TRACES[: 1 if is_old else None]
        with _loaded(cluster, max(versions), traces, folder, pops=not is_old) as loaded:
            names, keep_alive = loaded
            session = Session(names)
            for version in versions:
                for command, printed in _play(version, names, folder / version, keep_alive):
                    session.printed[version, command.feature] = printed
            if parse_peer(broker).kind == "trocket":
                # Probed last: a served request may have effects, even without fields.
                session.unserved.update(_ask_unserved(cluster))
            return session
    finally:
        cluster.close()


def _ask_unserved(cluster: Cluster) -> dict[str, list[int]]:
    codes = sorted({code for command in COMMANDS for code in command.codes})
    served = {code: _is_served(cluster, code) for code in codes}
    return {
        command.feature: [code for code in command.codes if not served[code]]
        for command in COMMANDS
    }


def _is_served(cluster: Cluster, code: int) -> bool:
    """Whether the server of a request answers anything else than "not supported"."""
    address = cluster.namesrv_address if code in OF_NAMESRV else cluster.broker_address
    try:
        with WireClient(address, timeout_s=PROBE_TIMEOUT_S) as wire:
            return wire.call(code, {}).code != NOT_SUPPORTED
    except PeerError:
        # The code is served: the server failed on the missing fields.
        return True


def _play(
    version: str, names: Names, folder: Path, keep_alive: Callable[[], None]
) -> list[tuple[Command, CommandOutput]]:
    folder.mkdir(parents=True, exist_ok=True)
    played = []
    admin: AdminJvm | None = None
    try:
        for command in commands_of(version):
            keep_alive()
            if admin is not None and command.keeps_client:
                admin.close()
                admin = None
            if admin is None:
                admin = AdminJvm(version, folder)
            began_s = time.monotonic()
            try:
                text, is_whole = admin.play(names.arguments(command, version), command.enough)
            except PeerError as error:
                text, is_whole = str(error), False
            if not is_whole or admin.has_ended:
                # The next command gets a new JVM.
                admin.close()
                admin = None
            played.append((command, CommandOutput(text, is_whole, time.monotonic() - began_s)))
            _remove_bodies(text)
    finally:
        if admin is not None:
            admin.close()
    return played


def _remove_bodies(printed: str) -> None:
    """Remove the files of message bodies that mqadmin leaves below /tmp."""
    for line in printed.splitlines():
        if line.startswith("Message Body Path:"):
            path = Path(line.partition(":")[2].strip())
            if path.parent == Path("/tmp/rocketmq/msgbodys"):
                path.unlink(missing_ok=True)


class AdminJvm:
    """A JVM that runs mqadmin's commands one after the other; see Admin.java.

    `has_ended`: the last command ended the JVM, as wrong arguments do.

    Raises: PeerError: it did not start.
    """

    def __init__(self, version: str, folder: Path, *, options: Sequence[str] = ()) -> None:
        home = folder / "home"
        (home / "conf").mkdir(parents=True, exist_ok=True)
        for name in ("logback_tools.xml", "rmq.tools.logback.xml"):
            (home / "conf" / name).write_text(LOGBACK)
        classes = compile_java(version).partition(os.pathsep)[0]
        jars = fetch_jars(version, "tools")
        command = ["java", *JAVA_SMALL, *JAVA_OPENS, f"-Duser.home={home}"]
        command += [f"-Drocketmq.home.dir={home}", "-Drocketmq.client.logUseSlf4j=true", *options]
        command += ["-cp", f"{classes}{os.pathsep}{jars}/*", "Admin"]
        self._command = class_archive.with_archive(command)
        self.has_ended = False
        self._answers: deque[tuple[str, bool]] = deque()
        self._process = LineProcess(
            self._command,
            folder=folder,
            name=f"mqadmin-{version}",
            environment={"ROCKETMQ_HOME": str(home)},
            on_line=self._on_line,
        )
        self._next(START_TIMEOUT_S)

    def _on_line(self, line: str) -> None:
        if line.startswith('{"admin":'):
            facts = json.loads(line)
            self.has_ended = facts["admin"] == "ended"
            self._answers.append((facts["printed"], facts["whole"]))

    def _next(self, timeout_s: float) -> tuple[str, bool]:
        def first() -> tuple[str, bool] | None:
            return self._answers.popleft() if self._answers else None

        return self._process.wait(first, timeout_s=timeout_s, what="its answer")

    def play(self, arguments: Sequence[str], enough: str = "") -> tuple[str, bool]:
        """The output of a command, and whether it ended (or printed enough) in time.

        Args:
          enough: a pattern; output that matches it ends a command that would run forever.
        Raises: PeerError: the JVM ended.
        """
        words = [str(int(COMMAND_TIMEOUT_S * 1000)), enough, *arguments]
        self._process.write_line("\t".join(words))
        return self._next(3 * COMMAND_TIMEOUT_S)

    def close(self) -> None:
        if self._process.running:
            class_archive.dump(self._command, self._process.pid)
        self._process.kill()


# ---- the load ----------------------------------------------------------------------------


@contextlib.contextmanager
def _loaded(
    cluster: Cluster,
    client_version: str,
    traces: Sequence[bytes],
    folder: Path,
    *,
    pops: bool,
) -> Iterator[tuple[Names, Callable[[], None]]]:
    """A load: topics, messages, a group with offsets, a connected producer and consumer.

    Two more are a Java client of this version, which answers the broker's requests; `traces`: how
    the trace records begin that it sends. With `pops`, a group has popped messages without a
    heartbeat, long before the first command, so that every broker has recorded it.

    Yields the names, and a function that sends the heartbeat of the first two: a broker drops
    silent clients.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with WireClient(cluster.broker_address) as wire, contextlib.ExitStack() as stack:
        wire.create_topic(TOPIC, queue_count=QUEUE_COUNT)
        for topic in (TRACED, RESENT, POPPED):
            wire.create_topic(topic, queue_count=1)
        for group in (GROUP, TRACED, POPPED):
            # Clients would create them later, and some commands list all topics of a group.
            wire.create_topic(f"%RETRY%{group}", queue_count=1)
        for group in (GROUP, ONLINE, TRACED, POPPED):
            wire.create_group(group)
        if pops:
            _pop_two_of_three(wire)
        keep_alive = _connect(wire)
        keep_alive()
        ids = [_send(wire, number, TOPIC, number % QUEUE_COUNT) for number in range(MESSAGE_COUNT)]
        resent_id = _send(wire, MESSAGE_COUNT, RESENT, 0)
        for queue_id in range(QUEUE_COUNT):
            wire.commit_offset(GROUP, TOPIC, queue_id, 2)
        for topic in (TOPIC, TRACED, RESENT, TRACE_TOPIC, f"%RETRY%{GROUP}", f"%RETRY%{ONLINE}"):
            wait_for_route(cluster.namesrv_address, topic, timeout_s=ROUTE_TIMEOUT_S)
        traced_id = stack.enter_context(_traced(cluster, client_version, wire, traces, folder))
        with WireClient(cluster.namesrv_address) as namesrv:
            body = namesrv.call(GET_BROKER_CLUSTER_INFO, {}).checked().body
        broker_name, broker = next(iter(ClusterInfo.from_body(body).broker_addr_table.items()))
        names = Names(
            topic=TOPIC,
            group=GROUP,
            online=ONLINE,
            producer=PRODUCER,
            broker=cluster.broker_address,
            broker_name=broker_name,
            cluster=broker.cluster,
            offset_id=ids[3],
            unique_id=UNIQUE_ID.format(3),
            popped=POPPED,
            traced=TRACED,
            traced_client=f"{TRACED_IP}@traced",
            traced_id=traced_id,
            resent=RESENT,
            resent_id=resent_id,
            topics_file=str(folder / "topics.json"),
            groups_file=str(folder / "groups.json"),
            folder=str(folder),
            namesrv=cluster.namesrv_address,
        )
        _write_lists(names)
        # Within the connections above: a broker forgets the group's members when they close.
        yield names, keep_alive


def _pop_two_of_three(wire: WireClient) -> None:
    """Send three messages, and pop two of them.

    Raises: PeerError: the messages, or the pops, took too long, or were not as many.
    """
    for number in range(3):
        _send(wire, MESSAGE_COUNT + 1 + number, POPPED, 0)
    # A broker acknowledges a message before a consumer can see it: a pop may find fewer.
    until_s = time.monotonic() + ROUTE_TIMEOUT_S
    while wire.max_offset(POPPED, 0) < 3:
        if time.monotonic() > until_s:
            raise PeerError(f"the messages of {POPPED} are not in their queue")
        threading.Event().wait(POLL_S)
    now_ms = SystemClock().wall_ms()
    found = pop(wire, POPPED, POPPED, now_ms=now_ms, count=2, invisible_ms=INVISIBLE_MS)
    if len(found) != 2:
        raise PeerError(f"{len(found)} messages of {POPPED} were popped instead of 2")


@contextlib.contextmanager
def _traced(
    cluster: Cluster, version: str, wire: WireClient, traces: Sequence[bytes], folder: Path
) -> Iterator[str]:
    """A live Java client with message traces; yields the unique id of the message it sent.

    Raises: PeerError: it did not start, consume, commit its offsets or send its traces in time.
    """
    # The client commits an offset of a queue without messages only after a first pull of 15 s.
    for topic in (TRACED, f"%RETRY%{TRACED}"):
        wire.commit_offset(TRACED, topic, 0, 0)
    arguments = (cluster.namesrv_address, TRACED, TRACED, TRACED_IP)
    command = java_command(version, "Traced", *arguments, folder=folder)
    client = LineProcess(command, folder=folder, name=f"traced-{version}")
    try:
        sent = client.wait_line(lambda line: line.startswith("sent "), timeout_s=START_TIMEOUT_S)
        unique_id = sent.partition(" ")[2]
        client.wait_line(lambda line: line == f"got {unique_id}", timeout_s=START_TIMEOUT_S)
        deadline_s = time.monotonic() + TRACE_TIMEOUT_S
        never = threading.Event()
        while not _is_settled(wire, unique_id, traces):
            if time.monotonic() > deadline_s:
                raise PeerError(f"{client.name}: no traces or offsets in {TRACE_TIMEOUT_S:.0f} s")
            never.wait(POLL_S)
        class_archive.dump(command, client.pid)
        yield unique_id
    finally:
        client.kill()


def _is_settled(wire: WireClient, unique_id: str, traces: Sequence[bytes]) -> bool:
    """Whether the client has committed its offset, and its traces can be found."""
    if wire.consumer_offset(TRACED, TRACED, 0) != wire.max_offset(TRACED, 0):
        return False
    found = b"".join(wire.query_message(TRACE_TOPIC, unique_id))
    return all(kind in found for kind in traces)


def _connect(wire: WireClient) -> Callable[[], None]:
    subscription = {
        "topic": TOPIC,
        "subString": "*",
        "tagsSet": [],
        "codeSet": [],
        "subVersion": 1,
        "expressionType": "TAG",
        "classFilterMode": False,
    }
    consumer = {
        "groupName": ONLINE,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }
    heartbeat = {
        "clientID": CLIENT_ID,
        "producerDataSet": [{"groupName": PRODUCER}],
        "consumerDataSet": [consumer],
    }
    body = json.dumps(heartbeat).encode()

    def keep_alive() -> None:
        wire.call(HEART_BEAT, {}, body).checked()

    return keep_alive


def _send(wire: WireClient, number: int, topic: str, queue_id: int) -> str:
    """Send one message and return its offset message id."""
    unique_id = UNIQUE_ID.format(number)
    properties = {"KEYS": f"key{number}", "TAGS": f"Tag{number % 2}", "UNIQ_KEY": unique_id}
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    body = f"body {number}".encode()
    wire.start_send(Outgoing(topic, queue_id, body, text))
    return wire.receive()[1].checked().fields["msgId"]


def _write_lists(names: Names) -> None:
    """The files that updateTopicList and updateSubGroupList read."""
    topics = [
        {"topicName": f"{TOPIC}List{number}", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        for number in range(2)
    ]
    groups = [{"groupName": f"{GROUP}List{number}", "retryMaxTimes": 3} for number in range(2)]
    Path(names.topics_file).write_text(json.dumps(topics))
    Path(names.groups_file).write_text(json.dumps(groups))
