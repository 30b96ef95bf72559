"""Apache's own DefaultMessageStore opens what ours wrote, after a clean stop and after a kill."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from trocket.common.clock import ManualClock
from trocket.common.java_hash import tags_code
from trocket.interop.maven import JAVA_OPENS, JAVA_SMALL, compile_sources
from trocket.remoting.hosts import host_bytes
from trocket.store.config import MessageStoreConfig
from trocket.store.message_store import MessageStore
from trocket.store.services import checkpoint_now

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TIMEOUT_S = 120
VERSIONS = ["5.5.0", "4.9.7"]
LEFT = ["stopped", "killed", "killed after a checkpoint"]
MESSAGES_PER_QUEUE = 990
QUEUES = 2
BURSTS_PER_MILLISECOND = 220
"""The last index file and, behind it, the last log file then begin in one and the same millisecond:
all that a checkpoint can say of the place where Apache's broker is to begin."""
SIZES = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
KEYS_ASKED = range(0, MESSAGES_PER_QUEUE, 50)
Place = tuple[str, int, int]


def write_store(folder: Path, killed: Path, noted: Path | None = None) -> dict[Place, str]:
    """A store of many small files; the SHA-1 of each record by its place.

    Args:
      folder: of the store, which is closed in the end.
      killed: gets a copy from before that: what a process leaves that is killed.
      noted: gets one after a checkpoint.
    """
    config = MessageStoreConfig(
        store_path_root_dir=str(folder),
        mapped_file_size_commit_log=SIZES["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=SIZES["mappedFileSizeConsumeQueue"],
        max_hash_slot_num=SIZES["maxHashSlotNum"],
        max_index_num=SIZES["maxIndexNum"],
    )
    clock = ManualClock()
    store = MessageStore(config, clock=clock)
    store.load()
    v4, v6 = host_bytes("127.0.0.1", 10911), host_bytes("2001:db8::1", 10911)
    records: dict[Place, str] = {}
    for number in range(MESSAGES_PER_QUEUE):
        if number % BURSTS_PER_MILLISECOND == 0:
            clock.advance(1)
        store.begin_burst()
        placed = []
        for queue_id in range(QUEUES):
            tag = f"Tag{number % 3}"
            unique = f"{number * QUEUES + queue_id:032X}"
            properties = f"UNIQ_KEY\x01{unique}\x02TAGS\x01{tag}\x02KEYS\x01k{number}\x02"
            refusal, physical_offset, queue_offset = store.put_message(
                "TopicA",
                queue_id,
                b"body %d" % number * (number % 20),
                properties.encode(),
                born_timestamp_ms=1_700_000_000_000 + number,
                born_host=v6 if number % 7 == 0 else v4,
                store_host=v4,
                tags_code=tags_code(tag),
                flag=number,
            )
            assert refusal is None
            placed.append((physical_offset, ("TopicA", queue_id, queue_offset)))
        store.commit()
        for physical_offset, place in placed:
            record = store.message_at(physical_offset)
            assert record is not None
            records[place] = hashlib.sha1(record).hexdigest()
            record.release()
    shutil.copytree(folder, killed)
    if noted is not None:
        while store.index.is_behind:
            store.index.work(1.0)
        store.index.finish_full_files()
        trio.run(checkpoint_now, store)
        shutil.copytree(folder, noted)
    store.close()
    return records


@dataclass(frozen=True)
class Opened:
    """What Apache's classes said of one store, and what we had written."""

    expected: dict[Place, str]
    had_abort_file: bool
    lines: list[dict]
    found: list[list[Place]]


class Oracle:
    """The program over Apache's classes, compiled for one version.

    Args:
      folder: for what it writes.
    """

    def __init__(self, version: str, source: Path, folder: Path) -> None:
        class_path = compile_sources(version, [source], jar_sets=["server"])
        folder.mkdir(parents=True)
        self._conf = folder / "sizes.conf"
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in SIZES.items()))
        java = ["java", *JAVA_SMALL, *JAVA_OPENS, f"-Duser.home={folder}"]
        self._java = [*java, "-cp", class_path, "Oracle"]

    def ask(self, mode: str, store: Path, questions: list[dict] | None = None) -> list[dict]:
        """What one run says: the store is opened, recovered and closed."""
        done = subprocess.run(
            [*self._java, mode, str(store), str(self._conf)],
            input="".join(json.dumps(question) + "\n" for question in questions or []),
            check=True,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def look_at(self, store: Path, expected: dict[Place, str]) -> Opened:
        """All that is asked of one store."""
        had_abort_file = (store / "abort").exists()
        lines = self.ask("dump", store)
        questions = [
            {"topic": "TopicA", "key": f"k{number}", "max": 32, "begin": 0, "end": 1 << 60}
            for number in KEYS_ASKED
        ]
        found = [
            sorted((topic, queue_id, offset) for topic, queue_id, offset, *_ in answer["found"])
            for answer in self.ask("query", store, questions)
        ]
        return Opened(expected, had_abort_file, lines, found)


@pytest.fixture(scope="module")
def oracle_source(golden: Path) -> Path:
    """The source of the program over Apache's classes, beside the recordings."""
    source = golden.parent / "oracle" / "Oracle.java"
    if not source.is_file():
        message = f"the oracle's source is missing: {source}; set TROCKET_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return source


@pytest.fixture(scope="module")
def looks(
    request: pytest.FixtureRequest, oracle_source: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Future]]:
    """All looks, under way side by side: a JVM mostly waits."""
    versions = VERSIONS if request.config.getoption("--matrix") else VERSIONS[:1]
    folder = tmp_path_factory.mktemp("opened")
    under_way: dict[tuple[str, str], Future] = {}
    with ThreadPoolExecutor(len(versions) * len(LEFT)) as pool:
        for version in versions:
            apache = Oracle(version, oracle_source, folder / version)
            stores = {left: folder / version / left for left in LEFT}
            expected = write_store(*stores.values())
            for left, store in stores.items():
                under_way[version, left] = pool.submit(apache.look_at, store, expected)
        yield under_way


@pytest.fixture(
    params=[
        pytest.param(
            (version, left),
            id=f"{version}-{left}",
            marks=() if version == VERSIONS[0] else pytest.mark.matrix,
        )
        for version in VERSIONS
        for left in LEFT
    ]
)
def opened(request: pytest.FixtureRequest, looks: dict[tuple[str, str], Future]) -> Opened:
    """One store of ours, opened by one version of Apache's classes."""
    look: Opened = looks[request.param].result(TIMEOUT_S)
    assert look.had_abort_file is request.param[1].startswith("killed")
    return look


@pytest.mark.usefixtures("java")
def test_apache_reads_every_message_where_we_wrote_it(opened: Opened) -> None:
    read = {
        (line["topic"], line["queueId"], line["queueOffset"]): line["rawSha1"]
        for line in opened.lines
        if line["kind"] == "message"
    }
    assert read == opened.expected
    assert [line for line in opened.lines if line["kind"] == "hole"] == []
    ends = {line["queueId"]: line["maxOffset"] for line in opened.lines if line["kind"] == "queue"}
    assert ends == dict.fromkeys(range(QUEUES), MESSAGES_PER_QUEUE)


@pytest.mark.usefixtures("java")
def test_apache_finds_messages_by_the_keys_that_we_indexed(opened: Opened) -> None:
    places = [[("TopicA", queue_id, number) for queue_id in range(QUEUES)] for number in KEYS_ASKED]
    assert opened.found == places
