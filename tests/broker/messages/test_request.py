"""Helpers of processors."""

from __future__ import annotations

import pytest

from trocket.broker.messages.request import read_body
from trocket.disk.errors import StoreIOError
from trocket.disk.until_saved import until_saved
from trocket.remoting.bodies import KVTable
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RequestRefused

from ..harness import BrokerTables


def test_a_good_body_is_read():
    request = RemotingCommand(17, body=b'{"table":{"a":"b"}}')
    assert read_body(request, KVTable.from_body).table == {"a": "b"}


def test_a_bad_body_is_a_refusal_that_names_the_request():
    with pytest.raises(RequestRefused, match="the body of request 17 cannot be read"):
        read_body(RemotingCommand(17, body=b"["), KVTable.from_body)


async def test_what_cannot_be_saved_is_a_refusal():
    class Table:
        async def saved(self):
            raise StoreIOError("/x", "no space left")

    with pytest.raises(RequestRefused, match=r"could not be saved: .*no space left"):
        await until_saved(Table())


def test_an_administrators_change_is_refused_on_a_full_disk():
    broker = BrokerTables()
    broker.is_full = True
    answer = broker.create_topic("T")
    assert answer.code == 1
    assert answer.remark.startswith("the change was made but could not be saved: ")
