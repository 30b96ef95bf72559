"""A registration that repeats the one before is not read, and leaves the same table as one that is.

Two name servers get the same requests; one of them gets each body with another number of spaces
behind it, so it has to read every one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trocket.common.steps import at_once
from trocket.namesrv import topic_table
from trocket.remoting.bodies import RegisterBrokerBody, TopicConfigSerializeWrapper
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from .builders import CLUSTER, address, topic, version
from .harness import Harness

TOPICS = ("A", "B", "C", "D")
STEPS_MIN = 8
"""A difference needs a registration twice, and a change between."""

SERVER = "192.0.2.9:1"


def body_of(
    topics: Mapping[str, int], *, counter: int = 1, filters: bool = False, bname: str = ""
) -> bytes:
    """The body of a registration; `topics`: the queues of each."""
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table={name: topic(name, queues=queues) for name, queues in topics.items()},
        data_version=version(counter),
    )
    if bname:
        wrapper.topic_queue_mapping_info_map = {name: {"bname": bname} for name in topics}
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=wrapper, filter_server_list=[SERVER] if filters else []
    ).to_body()


def register(harness: Harness, name: str, broker_id: int, body: bytes, **more: object) -> int:
    fields = {
        "clusterName": CLUSTER,
        "brokerName": name,
        "brokerAddr": address(name, broker_id),
        "brokerId": broker_id,
        "haServerAddr": "192.0.2.1:10912",
        **more,
    }
    return harness.ask(RequestCode.REGISTER_BROKER, body, **fields).code


def table(harness: Harness) -> dict[str, Any]:
    """All routes, as a client gets them."""
    routes = harness.routes
    return {name: routes.pick_up_topic_route_data(name) for name in routes.topics.topics()}


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the bodies that were read."""
    sizes: list[int] = []
    read = RegisterBrokerBody.from_body_in_steps

    def counted(body: bytes) -> Any:
        sizes.append(len(body))
        return read(body)

    monkeypatch.setattr(RegisterBrokerBody, "from_body_in_steps", counted)
    return sizes


def test_a_body_is_read_once(readings: list[int]) -> None:
    harness = Harness()
    for _ in range(3):
        for name in ("b", "c"):
            body = body_of({"A": 4, name: 1})
            assert register(harness, name, 0, body) == ResponseCode.SUCCESS
    assert len(readings) == 2
    assert set(table(harness)) == {"A", "b", "c"}


CHANGES: dict[str, Callable[[Harness], object]] = {
    "its topic is deleted": lambda harness: harness.routes.delete_topic("A"),
    "its permission is wiped": lambda harness: at_once(harness.routes.wipe_write_perm("b")),
    "its connection ends": lambda harness: harness.routes.channel_closed(harness.channel),
    "another body came between": lambda harness: register(harness, "b", 0, body_of({"E": 1})),
    "another address took its place": lambda harness: register(
        harness, "b", 0, body_of({"A": 1, "B": 1}), brokerAddr="192.0.2.2:10911"
    ),
    "it had another id": lambda harness: register(
        harness, "b", 1, body_of({"A": 1, "B": 1}), brokerAddr=address("b")
    ),
    "its address has another name": lambda harness: register(
        harness, "c", 0, body_of({"A": 1, "B": 1}), brokerAddr=address("b")
    ),
    "missing topics are deleted from now on": lambda harness: setattr(
        harness.config, "delete_topic_with_broker_registration", True
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_body_is_read_again_after(change: str, readings: list[int]) -> None:
    harness = Harness()
    body = body_of({"A": 1, "B": 1})
    for _ in range(2):
        register(harness, "b", 0, body)
    assert len(readings) == 1
    CHANGES[change](harness)
    readings.clear()
    assert register(harness, "b", 0, body) == ResponseCode.SUCCESS
    assert readings == [len(body)]
    assert {"A", "B"} <= set(table(harness))


def test_the_bodies_of_a_slave_and_of_old_brokers_are_read_each_time(readings: list[int]) -> None:
    harness = Harness()
    for _ in range(2):
        register(harness, "b", 1, body_of({"A": 1, "B": 1}), enableActingMaster=True)
    assert len(readings) == 2


def test_a_body_with_a_topic_that_found_no_room_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_table, "TOPICS_MAX", 2)
    harness = Harness()
    body = body_of({"A": 1, "B": 1, "C": 1})
    register(harness, "b", 0, body)
    assert set(table(harness)) == {"A", "B"}
    monkeypatch.setattr(topic_table, "TOPICS_MAX", 3)
    register(harness, "b", 0, body)
    assert set(table(harness)) == {"A", "B", "C"}


@dataclass(frozen=True)
class Registration:
    """A REGISTER_BROKER of a broker."""

    name: str
    broker_id: int
    port: int
    topics: dict[str, int]
    counter: int
    filters: bool
    bname: str
    acting: str

    def __call__(self, harness: Harness, spaces: int) -> object:
        body = (
            body_of(self.topics, counter=self.counter, filters=self.filters, bname=self.bname)
            + b" " * spaces
        )
        more = {"brokerAddr": f"192.0.2.1:{self.port}"}
        if self.acting:
            more["enableActingMaster"] = self.acting
        return register(harness, self.name, self.broker_id, body, **more)


@dataclass(frozen=True)
class Other:
    """Another change of the table; `what` is a key of CHANGES, or "close"."""

    what: str
    name: str
    topic: str

    def __call__(self, harness: Harness, spaces: int) -> object:
        routes = harness.routes
        if self.what == "delete":
            return routes.delete_topic(self.topic, CLUSTER if self.name == "b" else "")
        if self.what == "wipe":
            return at_once(routes.wipe_write_perm(self.name))
        if self.what == "add":
            return at_once(routes.add_write_perm(self.name))
        if self.what == "toggle":
            config = harness.config
            before = config.delete_topic_with_broker_registration
            config.delete_topic_with_broker_registration = not before
            return before
        return routes.channel_closed(harness.channel)


NAMES = st.sampled_from(["b", "c"])
REGISTRATIONS = st.builds(
    Registration,
    NAMES,
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([1, 2]),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 2), min_size=1),
    st.integers(1, 2),
    st.booleans(),
    st.sampled_from(["", "", "b", "c"]),
    st.sampled_from(["", "true", "false"]),
)
OTHERS = st.builds(
    Other,
    st.sampled_from(["delete", "wipe", "add", "toggle", "close"]),
    NAMES,
    st.sampled_from(TOPICS),
)


def as_slaves(registrations: list[Registration]) -> list[Registration]:
    """The same bodies and addresses, with the id of a slave that may act for its master."""
    return [replace(each, broker_id=1, acting="true") for each in registrations]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(REGISTRATIONS, min_size=1, max_size=4).flatmap(
        lambda few: st.lists(
            st.one_of(st.sampled_from(few + as_slaves(few)), OTHERS),
            min_size=STEPS_MIN,
            max_size=25,
        )
    ),
    st.integers(2, 5),
)
def test_a_table_is_the_same_as_one_whose_name_server_reads_all(
    steps: list[Registration | Other], room: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_table, "TOPICS_MAX", room)
        quick, reading = Harness(), Harness()
        for spaces, step in enumerate(steps, 1):
            assert step(quick, 0) == step(reading, spaces)
            assert table(quick) == table(reading)
