"""config/*.json of brokers that Apache ran: they load, and are saved as they were.

Files of 5.5.0 come out byte by byte; `groupTopicMap`, which is derived, in another order. Files of
4.9.7 come out with what 5.5.0 adds to them.
"""

from __future__ import annotations

import tarfile

import msgspec
import pytest

from trocket.broker.filters.consumer_filter_manager import ConsumerFilterManager
from trocket.broker.settings.config import BrokerConfig
from trocket.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from trocket.broker.tables.subscription_group_manager import SYSTEM_GROUPS, SubscriptionGroupManager
from trocket.broker.tables.topic_config_manager import TopicConfigManager
from trocket.common.clock import ManualClock
from trocket.disk.json_config import parse
from trocket.remoting.bodies import SubscriptionGroupConfig, TopicConfig

STORES = [
    f"{version}-{name}" for version in ("4.9.7", "5.5.0") for name in ("mix", "ext", "killed")
]
CONFIG = BrokerConfig(broker_cluster_name="GoldenCluster", broker_name="broker-g")


def read(golden, store, name):
    """The text of one file of a store. The killed brokers had not written their groups yet."""
    with tarfile.open(golden / "store" / f"{store}.tar.xz") as archive:
        wanted = f"{store}/config/{name}"
        member = next(m for m in archive if m.name.removeprefix("./") == wanted)
        file = archive.extractfile(member)
        assert file is not None
        return file.read()


def saved_nowhere(name, text):
    raise AssertionError(f"{name} must not be saved")


def with_defaults(tree, body_class):
    return msgspec.to_builtins(msgspec.convert(tree, body_class))


@pytest.mark.parametrize("store", STORES)
def test_topics_load_and_are_saved_as_they_were(golden, store):
    text = read(golden, store, "topics.json")
    table = TopicConfigManager(CONFIG, clock=ManualClock(), save=saved_nowhere)
    system_topics = set(table.topic_config_table)
    tree = parse(text)
    assert table.decode(text) == len(tree["topicConfigTable"])
    for name in system_topics - tree["topicConfigTable"].keys():
        del table.topic_config_table[name]
    saved = table.encode()
    if store.startswith("5.5.0"):
        assert saved == text
    again = parse(saved)
    assert again["dataVersion"] == {"stateVersion": 0} | tree["dataVersion"]
    assert list(again["topicConfigTable"]) == list(tree["topicConfigTable"])
    for name, topic in tree["topicConfigTable"].items():
        assert again["topicConfigTable"][name] == with_defaults(topic, TopicConfig)


@pytest.mark.parametrize("store", [store for store in STORES if "killed" not in store])
def test_groups_load_and_are_saved_as_they_were(golden, store):
    text = read(golden, store, "subscriptionGroup.json")
    table = SubscriptionGroupManager(CONFIG, clock=ManualClock(), save=saved_nowhere)
    tree = parse(text)
    groups = tree["subscriptionGroupTable"]
    assert table.decode(text) == len(groups)
    for name in SYSTEM_GROUPS:
        if name not in groups:
            del table.subscription_group_table[name]
    saved = table.encode()
    if store.startswith("5.5.0"):
        assert saved == text
    again = parse(saved)["subscriptionGroupTable"]
    assert list(again) == list(groups)
    for name, group in groups.items():
        assert with_defaults(again[name], SubscriptionGroupConfig) == with_defaults(
            group, SubscriptionGroupConfig
        )


@pytest.mark.parametrize("store", STORES)
def test_offsets_load_and_are_saved_as_they_were(golden, store):
    text = read(golden, store, "consumerOffset.json")
    table = ConsumerOffsetManager(clock=ManualClock(), save=saved_nowhere)
    tree = parse(text)
    assert table.decode(text) == len(tree["offsetTable"])
    again = parse(table.encode())
    assert again["offsetTable"] == tree["offsetTable"]
    if store.startswith("5.5.0"):
        assert again.keys() == tree.keys()
        assert again["dataVersion"] == tree["dataVersion"]
        assert again["pullOffsetTable"] == tree["pullOffsetTable"]
        assert {g: set(t) for g, t in again["groupTopicMap"].items()} == {
            g: set(t) for g, t in tree["groupTopicMap"].items()
        }
        without_map = table.encode().partition(b'"offsetTable"')[2]
        assert without_map == text.partition(b'"offsetTable"')[2]


@pytest.mark.parametrize("store", [store for store in STORES if "killed" not in store])
def test_consumer_filters_load_and_are_saved_as_they_were(golden, store):
    text = read(golden, store, "consumerFilter.json")
    table = ConsumerFilterManager(clock=ManualClock(), save=saved_nowhere)
    assert table.decode(text) == (2 if store.endswith("ext") else 0)
    assert table.encode() == text
