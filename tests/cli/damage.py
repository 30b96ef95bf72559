"""Fifty kinds of damage to a stopped store, each done to its files."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Kind(NamedTuple):
    """One kind.

    Attributes:
      name: in words.
      damage: changes the files of a data folder; returns False when it has none to change.
      needs_backup: a repair needs a backup or a choice, unless only unused bytes were damaged.
      is_harmless: nothing that trocket needs is damaged, at least in one of the stores.
    """

    name: str
    damage: Callable[[Path], bool | None]
    needs_backup: bool = False
    is_harmless: bool = False


def files(root: Path, folder: str) -> list[Path]:
    """The numbered files of a folder, without empty space for more messages."""
    return sorted(each for each in (root / folder).rglob("*") if each.is_file())


def queue_files(root: Path) -> list[Path]:
    return [each for each in files(root, "consumequeue") if each.read_bytes().strip(b"\0")]


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def noise(size: int) -> bytes:
    return random.Random(7).randbytes(size)


def remove(path: Path) -> bool:
    if not path.exists():
        return False
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return True


def config(name: str, text: bytes | None, *, both: bool = True) -> Callable[[Path], bool | None]:
    """Write a text in the place of a table and of its .bak; None: remove them."""

    def damage(root: Path) -> bool | None:
        path, spare = root / "config" / name, root / "config" / f"{name}.bak"
        if not path.exists():
            return False
        for each in (path, spare) if both else (path,):
            if text is None:
                each.unlink(missing_ok=True)
            elif each.exists() or each is path:
                each.write_bytes(text)
        return None

    return damage


def first_queue(root: Path) -> bool | None:
    return remove(queue_files(root)[0].parent)


def topic_folder(root: Path) -> bool | None:
    return remove(queue_files(root)[-1].parent.parent)


def all_queues(root: Path) -> bool | None:
    return remove(root / "consumequeue")


def oldest_queue_file(root: Path) -> bool | None:
    folders = [each.parent for each in queue_files(root)]
    many = [each for each in folders if folders.count(each) > 1]
    return remove(min(many[0].iterdir())) if many else False


def middle_queue_file(root: Path) -> bool | None:
    folders = [each.parent for each in queue_files(root)]
    many = [each for each in folders if folders.count(each) > 2]
    return remove(sorted(many[0].iterdir())[1]) if many else False


def newest_queue_file(root: Path) -> bool | None:
    return remove(queue_files(root)[-1])


def short_queue_file(root: Path) -> None:
    path = queue_files(root)[0]
    path.write_bytes(path.read_bytes()[:-20])


def empty_queue_file(root: Path) -> None:
    queue_files(root)[0].write_bytes(b"")


def zeroed_queue(root: Path) -> None:
    path = queue_files(root)[0]
    path.write_bytes(bytes(path.stat().st_size))


def noise_in_queue(root: Path) -> None:
    path = queue_files(root)[0]
    path.write_bytes(noise(path.stat().st_size))


def wrong_last_unit(root: Path) -> None:
    path = queue_files(root)[0]
    end = max(n for n in range(0, path.stat().st_size, 20) if any(path.read_bytes()[n : n + 12]))
    overwrite(path, end, (12345).to_bytes(8, "big"))


def wrong_first_unit(root: Path) -> None:
    path = queue_files(root)[0]
    start = min(n for n in range(0, path.stat().st_size, 20) if any(path.read_bytes()[n : n + 8]))
    overwrite(path, start, (98765).to_bytes(8, "big"))


def index_folder(root: Path) -> bool | None:
    return remove(root / "index")


def one_index_file(root: Path) -> bool | None:
    found = files(root, "index")
    return remove(found[0]) if len(found) > 1 else False


def noise_in_index(root: Path) -> bool | None:
    found = files(root, "index")
    if not found:
        return False
    overwrite(found[0], 40, noise(64))
    return None


def short_index(root: Path) -> bool | None:
    found = files(root, "index")
    if len(found) < 2:
        return False
    found[0].write_bytes(found[0].read_bytes()[:-100])
    return None


def index_header(root: Path) -> bool | None:
    found = files(root, "index")
    if not found:
        return False
    overwrite(found[0], 0, noise(40))
    return None


def write(name: str, data: bytes) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    return damage


def gone(name: str) -> Callable[[Path], bool | None]:
    return lambda root: remove(root / name)


def short_checkpoint(root: Path) -> None:
    path = root / "checkpoint"
    path.write_bytes(path.read_bytes()[:100])


def bit_of_checkpoint(root: Path) -> None:
    path = root / "checkpoint"
    overwrite(path, 75, bytes([path.read_bytes()[75] ^ 1]))


def log_files(root: Path) -> list[Path]:
    return [each for each in files(root, "commitlog") if each.name.isdigit()]


def oldest_log_file(root: Path) -> bool | None:
    found = log_files(root)
    return remove(found[0]) if len(found) > 1 else False


def middle_log_file(root: Path) -> bool | None:
    found = log_files(root)
    return remove(found[1]) if len(found) > 2 else False


def no_log(root: Path) -> bool | None:
    return remove(root / "commitlog")


def short_log_file(root: Path) -> None:
    path = log_files(root)[0]
    path.write_bytes(path.read_bytes()[:-1000])


def record(root: Path) -> None:
    overwrite(log_files(root)[0], 4, b"\xff\xff\xff\xff")


def body(root: Path) -> None:
    path = log_files(root)[0]
    size = int.from_bytes(path.read_bytes()[:4], "big")
    overwrite(path, size // 2, noise(size // 4))


def tail(root: Path) -> None:
    path = log_files(root)[-1]
    end = len(path.read_bytes().rstrip(b"\0"))
    overwrite(path, end + 64, noise(100))


BAD_NUMBER = b'{"offsetTable":{"T@g":{0:xx},"U@g":{1:1}}}'
BAD_TYPE = b'{"offsetTable":{"T@g":[1],"U@g":{1:1}}}'
TOPIC_BAD = b'{"topicConfigTable":{"T":{"topicName":"T","perm":"x"},"U":{"topicName":"U"}}}'

KINDS = [
    Kind("the folder of a queue is lost", first_queue),
    Kind("the folder of a topic is lost", topic_folder),
    Kind("all queues are lost", all_queues),
    Kind("the oldest file of a queue is lost", oldest_queue_file),
    Kind("a file in the middle of a queue is lost", middle_queue_file),
    Kind("the newest file of a queue is lost", newest_queue_file),
    Kind("a queue file is too short", short_queue_file),
    Kind("a queue file is empty", empty_queue_file),
    Kind("a queue file is all zeros", zeroed_queue),
    Kind("a queue file is noise", noise_in_queue),
    Kind("the last unit of a queue points elsewhere", wrong_last_unit),
    Kind("the first unit of a queue points elsewhere", wrong_first_unit),
    Kind("the index folder is lost", index_folder),
    Kind("the oldest index file is lost", one_index_file),
    Kind("the slots of an index file are noise", noise_in_index),
    Kind("an index file is too short", short_index),
    Kind("the header of an index file is noise", index_header),
    Kind("the checkpoint is noise", write("checkpoint", noise(4096))),
    Kind("the checkpoint is all ones", write("checkpoint", b"\xff" * 4096)),
    Kind("the checkpoint is lost", gone("checkpoint")),
    Kind("the checkpoint is empty", write("checkpoint", b"")),
    Kind("the checkpoint is too short", short_checkpoint),
    Kind("one bit of the checkpoint is turned", bit_of_checkpoint, is_harmless=True),
    Kind("the queue ends are lost", gone("queue_ends.trocket")),
    Kind("the queue ends are noise", write("queue_ends.trocket", noise(300))),
    Kind("the queue ends are empty", write("queue_ends.trocket", b"")),
    Kind("the deleted topics are noise", write("deleted_topics.trocket", noise(80))),
    Kind("all tables are lost", gone("config")),
    Kind("the topics are lost", config("topics.json", None)),
    Kind("the topics are noise", config("topics.json", noise(200))),
    Kind("the topics are empty", config("topics.json", b"")),
    Kind("the topics are an empty object", config("topics.json", b"{}")),
    Kind("the topics are cut", config("topics.json", b'{"topicConfigTable":{"T":{"top')),
    Kind("one topic is no topic", config("topics.json", TOPIC_BAD)),
    Kind("only the file of the topics is noise", config("topics.json", noise(99), both=False)),
    Kind("the groups are lost", config("subscriptionGroup.json", None)),
    Kind("the offsets are lost", config("consumerOffset.json", None), is_harmless=True),
    Kind("one offset is no number", config("consumerOffset.json", BAD_NUMBER)),
    Kind("the offsets of a group are a list", config("consumerOffset.json", BAD_TYPE)),
    Kind("only the file of the offsets is noise", config("consumerOffset.json", b"x", both=False)),
    Kind("the offsets are noise", config("consumerOffset.json", noise(99)), needs_backup=True),
    Kind("an offset is behind its queue", config(
        "consumerOffset.json", b'{"offsetTable":{"T@g":{0:99999}}}')),
    Kind("the delay offsets are lost", config("delayOffset.json", None)),
    Kind("one delay offset is no number", config(
        "delayOffset.json", b'{"offsetTable":{1:1,2:"x"}}')),
    Kind("the progress of timers is lost", gone("config/timercheck")),
    Kind("the wheel of timers is lost", gone("timerwheel"), is_harmless=True),
    Kind("the log of timers is lost", gone("timerlog"), is_harmless=True),
    Kind("a strange file lies in the commit log", write("commitlog/0000.bak", b"x")),
    Kind("a strange file lies among the queues", write("consumequeue/notes.txt", b"x")),
    Kind("a strange folder lies in a topic", write("consumequeue/T/old/0000", b"x")),
    Kind("a strange file lies in the index", write("index/copy of 1", b"x")),
    Kind("the queues are in RocksDB", write("consumequeue/CURRENT", b"M\n"), needs_backup=True),
    Kind("the topics are in RocksDB", write("config/topics/CURRENT", b"M\n"), needs_backup=True),
    Kind("the abort file says that the broker died", write("abort", b"1"), is_harmless=True),
    Kind("an fsync was in doubt", write("fsync_doubt.trocket", b"%020d" % 0), is_harmless=True),
    Kind("bytes follow the last record", tail, is_harmless=True),
    Kind("a log file is too short", short_log_file, needs_backup=True),
    Kind("the oldest log file is lost", oldest_log_file, needs_backup=True, is_harmless=True),
    Kind("a log file in the middle is lost", middle_log_file, needs_backup=True),
    Kind("the commit log is lost", no_log, needs_backup=True),
    Kind("a record's magic is noise", record, needs_backup=True),
    Kind("a body is noise", body, needs_backup=True),
]  # fmt: skip
