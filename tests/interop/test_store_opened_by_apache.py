"""Apache's own DefaultMessageStore opens what ours wrote, after a clean stop and after a kill."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from trocket.interop.maven import JAVA_OPENS, JAVA_SMALL, fetch_jars
from trocket.remoting.hosts import host_bytes
from trocket.remoting.java_hash import tags_code
from trocket.store.config import MessageStoreConfig
from trocket.store.message_store import MessageStore

pytestmark = pytest.mark.interop

TIMEOUT_S = 120
MESSAGES_PER_QUEUE = 900
QUEUES = 2
SIZES = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
Place = tuple[str, int, int]


def write_store(folder: Path, killed: Path) -> dict[Place, str]:
    """A store of many small files; the SHA-1 of each record by its place.

    Args:
      folder: of the store, which is closed in the end.
      killed: gets a copy from before that: what a process leaves that is killed.
    """
    config = MessageStoreConfig(
        store_path_root_dir=str(folder),
        mapped_file_size_commit_log=SIZES["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=SIZES["mappedFileSizeConsumeQueue"],
        max_hash_slot_num=SIZES["maxHashSlotNum"],
        max_index_num=SIZES["maxIndexNum"],
    )
    store = MessageStore(config)
    store.load()
    v4, v6 = host_bytes("127.0.0.1", 10911), host_bytes("2001:db8::1", 10911)
    records: dict[Place, str] = {}
    for number in range(MESSAGES_PER_QUEUE):
        store.begin_burst()
        placed = []
        for queue_id in range(QUEUES):
            tag = f"Tag{number % 3}"
            unique = f"{number * QUEUES + queue_id:032X}"
            properties = f"UNIQ_KEY\x01{unique}\x02TAGS\x01{tag}\x02KEYS\x01k{number}\x02"
            status, physical_offset, queue_offset = store.put_message(
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
            assert status == 0
            placed.append((physical_offset, ("TopicA", queue_id, queue_offset)))
        store.commit()
        for physical_offset, place in placed:
            record = store.message_at(physical_offset)
            assert record is not None
            records[place] = hashlib.sha1(record).hexdigest()
            record.release()
    shutil.copytree(folder, killed)
    store.close()
    return records


def apaches_dump(version: str, store: Path, scratch: Path, oracle: Path) -> list[dict]:
    jars = fetch_jars(version, "server")
    classes = scratch / "classes"
    classes.mkdir()
    compiler = ["javac", "-nowarn", "-proc:none", "-cp", f"{jars}/*", "-d", str(classes)]
    subprocess.run([*compiler, str(oracle)], check=True, capture_output=True, timeout=TIMEOUT_S)
    conf = scratch / "sizes.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in SIZES.items()))
    java = [
        "java",
        *JAVA_SMALL,
        *JAVA_OPENS,
        f"-Duser.home={scratch}",
        "-cp",
        f"{classes}:{jars}/*",
    ]
    done = subprocess.run(
        [*java, "Oracle", "dump", str(store), str(conf)],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="session")
def oracle(golden: Path) -> Path:
    """The source of the program over Apache's classes, beside the recordings."""
    source = golden.parent / "oracle" / "Oracle.java"
    if not source.is_file():
        message = f"the oracle's source is missing: {source}; set TROCKET_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return source


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("left", ["stopped", "killed"])
@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_apache_reads_every_message_where_we_wrote_it(
    version: str, left: str, tmp_path: Path, oracle: Path
) -> None:
    expected = write_store(tmp_path / "stopped", tmp_path / "killed")
    folder = tmp_path / left
    assert (folder / "abort").exists() is (left == "killed")
    lines = apaches_dump(version, folder, tmp_path, oracle)
    read = {
        (line["topic"], line["queueId"], line["queueOffset"]): line["rawSha1"]
        for line in lines
        if line["kind"] == "message"
    }
    assert read == expected
    assert [line for line in lines if line["kind"] == "hole"] == []
    ends = {line["queueId"]: line["maxOffset"] for line in lines if line["kind"] == "queue"}
    assert ends == dict.fromkeys(range(QUEUES), MESSAGES_PER_QUEUE)
