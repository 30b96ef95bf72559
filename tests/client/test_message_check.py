"""Mistakes in a message are errors in the line that creates it; correct ones are unchanged."""

from __future__ import annotations

import copy
from pickle import dumps, loads
from types import MappingProxyType
from typing import Any

import pytest

from trocket.blocking import Producer
from trocket.client import Message, MessageRefusedError
from trocket.testing import Broker


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"delay_level": -1}, "delay_level=-1"),
        ({"delay_level": "3"}, "delay_level='3'"),
        ({"delay_level": True}, "delay_level=True"),
        ({"delay_s": -1}, "seconds from 0 on"),
        ({"delay_s": float("nan")}, "seconds from 0 on"),
        ({"delay_s": "3"}, "seconds from 0 on"),
        ({"deliver_at_ms": 1.5}, "int of milliseconds"),
        ({"delay_level": 3, "delay_s": 3}, "several delays"),
        ({"delay_s": 3, "deliver_at_ms": 3}, "several delays"),
        ({"keys": 3}, "list of them"),
        ({"keys": b"k"}, "list of them"),
        ({"keys": ["a", 3]}, "3 is not a str"),
        ({"keys": ["a b"]}, "has a blank"),
        ({"keys": [""]}, "is empty"),
        ({"properties": {"a": 3}}, "property 'a': 3"),
        ({"properties": ["a"]}, "dict of str to str"),
        ({"tags": "a||b"}, "only a subscription has several"),
        ({"tags": ["a"]}, "one tag as str"),
        ({"tags": " a"}, "spaces around it"),
        ({"sharding_key": 7}, "sharding_key=7"),
        ({"flag": "x"}, "flag='x'"),
        ({"flag": 2**31}, "32 bits"),
        ({"wait_store_ok": "no"}, "True or False"),
        ({"topic": b"T"}, "topic=b'T'"),
    ],
)
def test_a_mistake_is_found_where_the_message_is_made(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(MessageRefusedError, match=text.replace("|", r"\|")):
        Message(**{"topic": "T", "body": b"x"} | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"keys": "one two"},
        {"keys": ["one", "two"]},
        {"keys": ("one",), "tags": "a", "sharding_key": "s", "flag": -1, "wait_store_ok": False},
        {"properties": {"a": "b"}, "delay_level": 18},
        {"properties": MappingProxyType({"a": "b"}), "delay_s": 0.5},
        {"deliver_at_ms": 1_700_000_000_000},
    ],
)
def test_a_message_can_be_pickled_and_copied(fields: dict[str, Any]) -> None:
    message = Message("T", "body", **fields)
    assert loads(dumps(message)) == message
    assert copy.deepcopy(message) == message


def test_a_level_above_the_table_is_refused_unless_the_table_is_longer() -> None:
    message = Message("T", b"x", delay_level=30)
    with Broker() as broker:
        with Producer(broker.url) as producer, pytest.raises(MessageRefusedError) as refused:
            producer.send(message)
        assert "delay_level_max here and messageDelayLevel in the brokers" in str(refused.value)
        with Producer(broker.url, delay_level_max=40) as producer:
            producer.send(message)
