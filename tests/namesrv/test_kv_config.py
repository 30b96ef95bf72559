"""The KV table and its file."""

from __future__ import annotations

import json

import pytest

from trocket.disk.errors import CorruptRecordError
from trocket.disk.json_config import save_json
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.state_files import StateFiles
from trocket.namesrv import kv_config
from trocket.namesrv.kv_config import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from trocket.remoting.errors import RequestRefused

FOLDER, NAME = "/home/namesrv", "kvConfig.json"
PATH = f"{FOLDER}/{NAME}"


def load(kv: KVConfigManager, disk: MemoryDisk) -> None:
    StateFiles(disk, FOLDER).load(NAME, kv.decode)


def test_an_item_can_be_put_read_and_deleted():
    kv = KVConfigManager()
    kv.put("NS", "k", "v")
    assert kv.get("NS", "k") == "v"
    assert kv.items("NS") == {"k": "v"}
    assert kv.delete("NS", "k")
    assert not kv.delete("NS", "k")
    assert kv.get("NS", "k") is None


def test_a_namespace_stays_when_its_last_item_goes_and_is_unknown_before_the_first():
    kv = KVConfigManager()
    assert kv.items("NS") is None
    kv.put("NS", "k", "v")
    kv.delete("NS", "k")
    assert kv.items("NS") == {}


def test_items_are_a_copy():
    kv = KVConfigManager()
    kv.put("NS", "k", "v")
    items = kv.items("NS")
    assert items is not None
    items.clear()
    assert kv.get("NS", "k") == "v"


def test_the_file_is_the_one_of_apache_and_is_read_again():
    kv = KVConfigManager()
    kv.put(NAMESPACE_ORDER_TOPIC_CONFIG, "topic", "broker-a:4;broker-b:4")
    kv.put("NS", "名", 'a "quoted" text')
    disk = MemoryDisk()
    save_json(disk, PATH, kv.to_json())
    assert json.loads(kv.to_json()) == {
        "configTable": {
            "ORDER_TOPIC_CONFIG": {"topic": "broker-a:4;broker-b:4"},
            "NS": {"名": 'a "quoted" text'},
        }
    }
    again = KVConfigManager()
    load(again, disk)
    assert again.to_json() == kv.to_json()


def test_without_a_file_the_table_is_empty():
    kv = KVConfigManager()
    load(kv, MemoryDisk())
    assert json.loads(kv.to_json()) == {"configTable": {}}


def write(disk, path, content):
    disk.make_folder("/home/namesrv")
    file = disk.open(path, create=True)
    file.pwrite(content, 0)
    file.close()


def test_a_torn_file_is_passed_over_for_its_backup():
    disk = MemoryDisk()
    write(disk, PATH, b'{"configTable":{"NS":{"k"')
    write(disk, PATH + ".bak", b'{"configTable":{"NS":{"k":"old"}}}')
    kv = KVConfigManager()
    load(kv, disk)
    assert kv.get("NS", "k") == "old"


@pytest.mark.parametrize(
    "content", [b'{"configTable":', b'{"configTable":{"NS":{"k":1}}}', b"[]", b"\xff"]
)
def test_a_file_that_is_no_table_is_refused_and_not_replaced_by_an_empty_one(content):
    disk = MemoryDisk()
    write(disk, PATH, content)
    with pytest.raises(CorruptRecordError, match=r"kvConfig\.json"):
        load(KVConfigManager(), disk)


@pytest.mark.parametrize(
    ("namespace", "key"), [("", "k"), ("NS", ""), ("N\0S", "k"), ("NS", "k" * 1025)]
)
def test_an_illegal_name_is_refused(namespace, key):
    kv = KVConfigManager()
    with pytest.raises(RequestRefused, match="illegal"):
        kv.put(namespace, key, "v")
    assert kv.items(namespace) is None


def test_a_value_too_long_is_refused():
    with pytest.raises(RequestRefused, match="65537 characters"):
        KVConfigManager().put("NS", "k", "x" * 65_537)


def test_a_value_that_could_not_be_written_is_refused():
    kv = KVConfigManager()
    with pytest.raises(RequestRefused, match="surrogate"):
        kv.put("NS", "k", "a\ud800")
    assert json.loads(kv.to_json()) == {"configTable": {}}


def test_a_full_table_takes_no_new_item_but_changes_old_ones(monkeypatch):
    monkeypatch.setattr(kv_config, "KV_ITEMS_MAX", 2)
    kv = KVConfigManager()
    kv.put("NS", "a", "1")
    kv.put("NS", "b", "1")
    with pytest.raises(RequestRefused, match="full"):
        kv.put("NS", "c", "1")
    kv.put("NS", "a", "2")
    kv.delete("NS", "b")
    kv.put("NS", "c", "1")
    assert kv.items("NS") == {"a": "2", "c": "1"}


def test_a_full_table_takes_no_new_namespace(monkeypatch):
    monkeypatch.setattr(kv_config, "KV_NAMESPACES_MAX", 1)
    kv = KVConfigManager()
    kv.put("A", "k", "v")
    with pytest.raises(RequestRefused, match="namespaces"):
        kv.put("B", "k", "v")
    assert kv.items("B") is None


def test_items_of_a_loaded_file_count_against_the_limit(monkeypatch):
    monkeypatch.setattr(kv_config, "KV_ITEMS_MAX", 1)
    disk = MemoryDisk()
    write(disk, PATH, b'{"configTable":{"NS":{"k":"v"}}}')
    kv = KVConfigManager()
    load(kv, disk)
    with pytest.raises(RequestRefused, match="full"):
        kv.put("NS", "l", "v")
