"""Limits, sizes and names that C and Python both have are equal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from re import findall
from typing import Final

import pytest
import trio

from trocket import native
from trocket.broker.sending import send_numbers
from trocket.native import objects
from trocket.native.queue_state import PureQueueState, QueueState
from trocket.remoting import codec, message_codec, pull_templates, record_schema, sys_flag
from trocket.remoting.request_codes import RequestCode
from trocket.store import format as store_format
from trocket.store.index import index_file

from ..kit import embedded_broker, send_fields
from .test_path_counts import pull_at_end

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

LIMITS: Final[Mapping[str, int]] = {
    "QUEUE_ID_MAX": send_numbers.QUEUE_ID_MAX,
    "BORN_DIGITS": send_numbers.BORN_DIGITS,
    "SEND_MESSAGE": RequestCode.SEND_MESSAGE,
    "SEND_MESSAGE_V2": RequestCode.SEND_MESSAGE_V2,
    "SEND_BATCH_MESSAGE": RequestCode.SEND_BATCH_MESSAGE,
    "PULL_MESSAGE": RequestCode.PULL_MESSAGE,
    "END_TRANSACTION": RequestCode.END_TRANSACTION,
    "ONEWAY_FLAG": codec.ONEWAY_FLAG,
    "FRAME_SIZE_MAX": codec.FRAME_SIZE_MAX,
    "FRAME_START_SIZE": codec.FRAME.struct().size,
    "HEADER_SIZE": pull_templates.HEADER_SIZE,
    "MAGIC_V1": record_schema.MAGIC_V1,
    "RECORD_HEAD_SIZE": record_schema.RECORD_HEAD.size,
    "TOPIC_SIZE_MAX_V1": record_schema.TOPIC_SIZE_MAX_V1,
    "PROPERTIES_SIZE_MAX": message_codec.PROPERTIES_SIZE_MAX,
    "COMPRESSED": sys_flag.COMPRESSED,
    "PREPARED": sys_flag.TRANSACTION_PREPARED_TYPE,
    "COMPRESSION_TYPE_MASK": sys_flag.COMPRESSION_TYPE_MASK,
    "HOSTS_V6": sys_flag.BORNHOST_V6 | sys_flag.STOREHOSTADDRESS_V6,
    "UNIT_SIZE": store_format.UNIT_SIZE,
    "ENTRY_SIZE": index_file.PACKED_ENTRY.size,
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_of_the_extension_is_that_of_python(name: str) -> None:
    assert getattr(native.extension, name) & 0xFFFFFFFF == LIMITS[name] & 0xFFFFFFFF


def test_all_limits_are_compared() -> None:
    header = Path(native.__file__).with_name("limits.h").read_text("ascii")
    assert set(findall(r"#define ([A-Z_0-9]+) \S", header)) == set(LIMITS)


PROTOCOLS: Final = (
    objects.TopicLike, objects.GroupLike, objects.ChannelLike, objects.TermsLike, objects.PullLike,
    objects.HeldPullLike, objects.HeldQueueLike,
)  # fmt: skip


def names_of(protocol: type) -> set[str]:
    """The attributes that a Protocol declares."""
    declared = {*vars(protocol), *vars(protocol).get("__annotations__", ())}
    return {name for name in declared if not name.startswith("_")}


def test_the_declared_names_are_those_that_c_uses() -> None:
    assert native.extension is not None
    used = native.extension.attributes
    assert len(used) == len(set(used))
    assert {name for each in PROTOCOLS for name in names_of(each)} == set(used)


async def test_the_objects_of_a_broker_have_these_names(autojump_clock: object) -> None:
    async with embedded_broker() as broker, trio.open_nursery() as nursery:
        client = await broker.connect()
        assert (await client.ask(310, send_fields(), b"x")).code == 0
        await pull_at_end(broker, nursery, 1)
        tables, held_pulls = (
            broker.controller.parts.tables,
            broker.controller.parts.pulling.processor,
        )
        queue = held_pulls.hold_service.queues["T", 0]
        (held,) = queue.others
        found: list[object] = [
            tables.topics.topic_config_table["T"], tables.groups.subscription_group_table["CG"],
            held.pull.channel, held.pull.terms, held.pull, held, queue,
        ]  # fmt: skip
        nursery.cancel_scope.cancel()
    for protocol, each in zip(PROTOCOLS, found, strict=True):
        missing = {name for name in names_of(protocol) if not hasattr(each, name)}
        assert not missing, protocol


def test_the_queue_of_c_is_as_that_of_python() -> None:
    assert QueueState is not PureQueueState
    ours, pure = (each(b"\x01T", 7, -5, 20) for each in (QueueState, PureQueueState))
    public = {name for name in dir(pure) if not name.startswith("_")}
    assert {name for name in dir(ours) if not name.startswith("_")} == public
    for queue in (ours, pure):
        queue.committed_offset = queue.next_offset = 1 << 62
        assert queue.append_units(b"u" * 20, 1)
        assert not queue.append_units(b"v" * 60, 3)
        queue.tail_offset, queue.cold_end = 5, -1
    for name in public - {"append_units"}:
        assert getattr(ours, name) == getattr(pure, name), name
