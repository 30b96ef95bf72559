"""The route table against a simple model: any order of comings and goings."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trocket.common.steps import at_once
from trocket.namesrv.registration import BROKER_CHANNEL_EXPIRED_MS, BrokerAddrInfo
from trocket.namesrv.route_info_manager import RouteInfoManager
from trocket.remoting.errors import RequestRefused

from .builders import registration

NAMES = st.sampled_from(["a", "b", "c"])
CLUSTERS = st.sampled_from(["C", "D"])
IDS = st.integers(0, 2)
ADDRESSES = st.sampled_from(["h1:1", "h2:1", "h3:1", "h4:1"])
TOPICS = st.lists(st.sampled_from(["T", "U", "V", "W"]), min_size=2, max_size=4, unique=True)
CHANNELS = st.sampled_from(["channel 1", "channel 2", "channel 3"])


@dataclass
class Broker:
    """What the model keeps of one broker."""

    name: str
    broker_id: int
    channel: str
    last_ms: int


@dataclass
class Model:
    """Brokers by cluster and address, and the topics of each name; nothing else is state."""

    brokers: dict[BrokerAddrInfo, Broker] = field(default_factory=dict)
    topics: dict[str, set[str]] = field(default_factory=dict)

    def ids(self, name: str) -> dict[int, str]:
        return {b.broker_id: key[1] for key, b in self.brokers.items() if b.name == name}

    def remove(self, keys: list[BrokerAddrInfo]) -> None:
        for key in keys:
            del self.brokers[key]
        for name in [name for name in self.topics if not self.ids(name)]:
            del self.topics[name]


class RoutesAreTheirModel(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.routes = RouteInfoManager()
        self.model = Model()
        self.now_ms = 0
        self.counter = 0

    @rule(
        name=NAMES, cluster=CLUSTERS, broker_id=IDS, address=ADDRESSES, topics=TOPICS,
        channel=CHANNELS,
    )  # fmt: skip
    def register(self, name, cluster, broker_id, address, topics, channel):
        self.counter += 1
        registered = registration(
            name, broker_id, topics, counter=self.counter, cluster_name=cluster,
            broker_addr=address,
        )  # fmt: skip
        others = {key[0] for key, b in self.model.brokers.items() if b.name == name} - {cluster}
        try:
            now_ms = self.now_ms
            at_once(
                self.routes.register_broker_in_steps(registered, channel=channel, now_ms=now_ms)
            )
        except RequestRefused:
            assert others
            return
        assert not others
        key = BrokerAddrInfo(cluster, address)
        known = self.model.brokers.get(key)
        if known is not None and known.name != name:
            self.model.remove([key])
        replaced = [
            k for k, b in self.model.brokers.items()
            if k != key and (b.name, b.broker_id) == (name, broker_id)
        ]  # fmt: skip
        for k in replaced:
            del self.model.brokers[k]
        self.model.brokers[key] = Broker(name, broker_id, channel, self.now_ms)
        self.model.topics.setdefault(name, set())
        if broker_id == min(self.model.ids(name)):
            self.model.topics[name] |= set(topics)

    @rule(name=NAMES, cluster=CLUSTERS, address=ADDRESSES)
    def unregister(self, name, cluster, address):
        key = BrokerAddrInfo(cluster, address)
        self.routes.unregister_broker(key, name)
        known = self.model.brokers.get(key)
        if known is not None and known.name == name:
            self.model.remove([key])

    @rule(channel=CHANNELS)
    def close(self, channel):
        removal = self.routes.channel_closed(channel)
        gone = [key for key, b in self.model.brokers.items() if b.channel == channel]
        assert sorted(removal.brokers) == sorted(gone)
        self.model.remove(gone)

    @rule(cluster=CLUSTERS, address=ADDRESSES)
    def heartbeat(self, cluster, address):
        key = BrokerAddrInfo(cluster, address)
        self.routes.update_heartbeat(key, now_ms=self.now_ms)
        if key in self.model.brokers:
            self.model.brokers[key].last_ms = self.now_ms

    @rule(passed_ms=st.sampled_from([1, 30_000, 60_000, BROKER_CHANNEL_EXPIRED_MS]))
    def pass_time_and_expire(self, passed_ms):
        self.now_ms += passed_ms
        removal = self.routes.expire(now_ms=self.now_ms)
        gone = [
            key for key, b in self.model.brokers.items()
            if self.now_ms - b.last_ms > BROKER_CHANNEL_EXPIRED_MS
        ]  # fmt: skip
        assert sorted(removal.brokers) == sorted(gone)
        self.model.remove(gone)

    @rule(topic=st.sampled_from(["T", "U"]), cluster=st.sampled_from(["", "C", "D"]))
    def delete_topic(self, topic, cluster):
        self.routes.delete_topic(topic, cluster)
        clusters = {b.name: key[0] for key, b in self.model.brokers.items()}
        for name, topics in self.model.topics.items():
            if cluster in ("", clusters[name]):
                topics.discard(topic)

    @rule(name=NAMES)
    def wipe_write_perm(self, name):
        count = len(self.model.topics.get(name, ()))
        assert at_once(self.routes.wipe_write_perm(name)) == count

    @invariant()
    def tables_agree_with_the_model_and_with_each_other(self):
        live = {key: b.name for key, b in self.model.brokers.items()}
        assert self.routes.live_brokers() == live
        info = self.routes.cluster_info()
        assert {
            (data.cluster, name, broker_id, address)
            for name, data in info.broker_addr_table.items()
            for broker_id, address in data.broker_addrs.items()
        } == {(k[0], b.name, b.broker_id, k[1]) for k, b in self.model.brokers.items()}
        assert {
            (cluster, name) for cluster, names in info.cluster_addr_table.items() for name in names
        } == {(key[0], b.name) for key, b in self.model.brokers.items()}
        pairs = {(topic, name) for name, topics in self.model.topics.items() for topic in topics}
        table = self.routes.topics
        assert {(t, name) for t in table.topics() for name in table.queues(t)} == pairs
        for name in ("a", "b", "c"):
            assert table.topics_of_broker(name) == {t for t, n in pairs if n == name}
        for topic in ("T", "U", "V", "W"):
            route = self.routes.pick_up_topic_route_data(topic)
            names = [data.broker_name for data in route.broker_datas] if route else []
            assert sorted(names) == sorted(name for t, name in pairs if t == topic)


TestRoutesAreTheirModel = pytest.mark.slow(RoutesAreTheirModel.TestCase)
TestRoutesAreTheirModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
