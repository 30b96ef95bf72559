"""Written routes are kept, and are at every moment what the tables say."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trocket.common.steps import at_once
from trocket.namesrv import topic_table
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.route_info_manager import RouteInfoManager
from trocket.namesrv.topic_table import Form, RouteAnswers, TopicTable
from trocket.remoting.bodies import QueueData, TopicRouteData
from trocket.remoting.errors import RequestRefused
from trocket.remoting.request_codes import RequestCode as Code

from .builders import addr_info, registration, topic
from .harness import Harness
from .test_processors import register

FORMS = [Form(acting, quotes) for acting in (False, True) for quotes in (False, True)]
NAMES = st.sampled_from(["a", "b", "c"])
TOPICS = st.sampled_from(["T", "U", "V"])
ADDRESSES = st.sampled_from(["h1:1", "h2:1", "h3:1", "h4:1"])
CHANNELS = st.sampled_from(["channel 1", "channel 2"])


@pytest.fixture
def writings(monkeypatch):
    """How often a route was written."""
    count = Counter()
    write = TopicRouteData.to_body

    def counted(self, **options):
        count["routes"] += 1
        return write(self, **options)

    monkeypatch.setattr(TopicRouteData, "to_body", counted)
    return count


@pytest.fixture
def harness():
    harness = Harness()
    register(harness)
    register(harness, "b")
    return harness


def ask(harness, **fields):
    answer = harness.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="T", **fields)
    assert answer.code == 0
    return answer.body


def test_a_route_is_written_once_until_its_topic_or_a_broker_changes(harness, writings):
    first = ask(harness)
    assert ask(harness) == first
    register(harness)  # without a change
    harness.routes.topics.put("U", QueueData(broker_name="a", perm=2))
    assert ask(harness) == first
    assert writings["routes"] == 1
    harness.routes.topics.put("T", QueueData(broker_name="a", perm=2))
    second = ask(harness)
    assert second != first
    register(harness, "b", 1)
    third = ask(harness)
    assert third != second
    harness.routes.topics.put_mapping("T", "a", {"bname": "a"})
    assert ask(harness) != third
    assert writings["routes"] == 4


CHANGES = {
    "put": lambda table: table.put("T", QueueData(broker_name="b")),
    "mapping": lambda table: table.put_mapping("T", "a", {"bname": "a"}),
    "remove": lambda table: table.remove("T", "a"),
    "remove topic": lambda table: table.remove_topic("T"),
    "remove broker": lambda table: table.remove_broker("a"),
    "permission": lambda table: at_once(table.change_perm("a", keep=4, add=0)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_change_of_a_topic_drops_its_route_and_no_other(change):
    table, form = TopicTable(), FORMS[0]
    table.put("T", QueueData(broker_name="a", perm=6))
    table.put("U", QueueData(broker_name="c"))
    for name in ("T", "U"):
        table.answers.keep(name, form, b"route")
    change(table)
    assert table.answers.get("T", form) is None
    assert table.answers.get("U", form) == b"route"


SLAVE_CHANNEL = object()


def change_of_broker(routes, **more):
    one = registration("a", 1, ["T", "U"], **more)
    at_once(routes.register_broker_in_steps(one, channel=SLAVE_CHANNEL, now_ms=0))


BROKER_CHANGES = {
    "address": lambda routes: change_of_broker(routes, broker_addr="elsewhere:1"),
    "zone": lambda routes: change_of_broker(routes, zone_name="z"),
    "acting": lambda routes: change_of_broker(routes, acting=True),
    "filter servers": lambda routes: change_of_broker(routes, filter_servers=["f:1"]),
    "unregistered": lambda routes: routes.unregister_broker(addr_info("a", 1), "a"),
    "connection": lambda routes: routes.channel_closed(SLAVE_CHANNEL),
}


@pytest.mark.parametrize("change", BROKER_CHANGES.values(), ids=BROKER_CHANGES)
def test_each_change_of_a_broker_shows_in_the_next_route(change):
    routes, form = RouteInfoManager(), FORMS[0]
    for broker_id, channel in enumerate((object(), SLAVE_CHANNEL)):
        one = registration("a", broker_id, ["T", "U"])
        at_once(routes.register_broker_in_steps(one, channel=channel, now_ms=0))
    before = routes.route_body("T", form)
    change_of_broker(routes)
    assert routes.topics.answers.get("T", form) == before
    change(routes)
    after = routes.route_body("T", form)
    assert after != before
    assert after == routes.pick_up_topic_route_data("T").to_body(quote_int_keys=False)


def test_a_route_for_a_zone_or_with_the_order_is_written_each_time(harness, writings):
    zone = {"___ZONE_MODE": "true", "___ZONE_NAME": "z"}  # `ask` strips one
    plain = ask(harness)
    assert ask(harness, **zone) != plain
    assert ask(harness, **zone) != plain
    assert ask(harness) == plain
    assert writings["routes"] == 3
    ordered = Harness(NamesrvConfig(order_message_enable=True))
    register(ordered)
    ask(ordered)
    ask(ordered)
    assert writings["routes"] == 5


def test_kept_routes_have_a_limit_and_the_oldest_go_first(monkeypatch):
    monkeypatch.setattr(topic_table, "ROUTES_SIZE_MAX", 1_500)
    answers, form = RouteAnswers(), FORMS[0]
    answers.keep("large", form, bytes(1_500))
    assert answers.get("large", form) is None
    for name in ("a", "b", "c"):
        answers.keep(name, form, bytes(100))
    assert [answers.get(name, form) is not None for name in ("a", "b", "c")] == [True] * 3
    answers.keep("d", form, bytes(700))
    assert [answers.get(name, form) is not None for name in ("a", "b", "c", "d")] == [
        False, False, True, True,
    ]  # fmt: skip
    assert 0 < answers.size <= 1_500
    answers.drop("c")
    answers.drop("d")
    assert answers.size == 0


class KeptRoutesAreTrue(RuleBasedStateMachine):
    """Every route of every form is the one that would be written anew, after any change."""

    @initialize()
    def start(self):
        self.routes = RouteInfoManager()
        self.counter = 0

    @rule(
        name=NAMES,
        broker_id=st.integers(0, 2),
        address=ADDRESSES,
        topics=st.lists(TOPICS, min_size=2, unique=True),
        perm=st.sampled_from([2, 4, 6]),
        acting=st.sampled_from([None, False, True]),
        zone=st.sampled_from([None, "z"]),
        servers=st.sampled_from([None, [], ["f:1"]]),
        mapped=st.booleans(),
        is_new=st.booleans(),
        deletes=st.booleans(),
        channel=CHANNELS,
    )
    def register(
        self, name, broker_id, address, topics, perm, acting, zone, servers, mapped, is_new,
        deletes, channel,
    ):  # fmt: skip
        self.counter += is_new
        mappings = {topics[0]: {"bname": name, "n": self.counter}} if mapped else {}
        one = registration(
            name, broker_id, [topic(each, perm=perm) for each in topics], counter=self.counter,
            acting=acting, broker_addr=address, zone_name=zone, filter_servers=servers,
            queue_mappings=mappings,
        )  # fmt: skip
        steps = self.routes.register_broker_in_steps(
            one, channel=channel, now_ms=0, delete_missing_topics=deletes
        )
        try:
            at_once(steps)
        except RequestRefused:
            return

    @rule(name=NAMES)
    def wipe(self, name):
        at_once(self.routes.wipe_write_perm(name))

    @rule(name=NAMES)
    def add(self, name):
        at_once(self.routes.add_write_perm(name))

    @rule(name=TOPICS, cluster=st.sampled_from(["", "C", "D"]))
    def delete(self, name, cluster):
        self.routes.delete_topic(name, cluster)

    @rule(name=NAMES, of=TOPICS, perm=st.sampled_from([2, 6]))
    def register_topic(self, name, of, perm):
        self.routes.register_topic(of, [QueueData(broker_name=name, perm=perm)])

    @rule(address=ADDRESSES, name=NAMES)
    def unregister(self, address, name):
        for each in self.routes.live_brokers():
            if each.broker_addr == address:
                self.routes.unregister_broker(each, name)
                return

    @rule(channel=CHANNELS)
    def close(self, channel):
        self.routes.channel_closed(channel)

    @invariant()
    def kept_routes_are_true(self):
        for name in ("T", "U", "V"):
            for form in FORMS:
                route = self.routes.pick_up_topic_route_data(
                    name, support_acting_master=form.shows_acting
                )
                true = None if route is None else route.to_body(quote_int_keys=form.quotes_keys)
                assert self.routes.route_body(name, form) == true


KeptRoutesAreTrue.TestCase.settings = settings(max_examples=25, stateful_step_count=20)
TestKeptRoutesAreTrue = pytest.mark.slow(KeptRoutesAreTrue.TestCase)
