"""A frame's body as a short string for one line. Pure; any bytes give a string.

Known bodies are decoded (heartbeats, routes, locks, records, batches, offsets); other JSON and
text is shown as it is, truncated; the rest is hex.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from ...common.message_properties import PROPERTY_KEYS, PROPERTY_TAGS, properties_from_bytes
from ...remoting import fastjson
from ...remoting.bodies import (
    ClusterInfo,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    TopicRouteData,
)
from ...remoting.bodies.route import BrokerData
from ...remoting.codec import RemotingCommand
from ...remoting.errors import MissingPackageError, RemoteProtocolError
from ...remoting.message import MessageExt
from ...remoting.message_batch import iter_batch
from ...remoting.message_codec import RECORD_SIZE_MIN, decode_record
from ...remoting.request_codes import RequestCode

BODY_CHARS_MAX: Final = 600
"""Characters of a body in a line."""
HEX_BYTES_MAX: Final = 24
"""Bytes shown of a body that is not text."""
TEXT_BYTES_MAX: Final = 64
"""Bytes shown of one message's body."""
INFLATED_SIZE_MAX: Final = 4 << 20
"""Bytes to which a compressed body is inflated at most."""
ITEMS_MAX: Final = 8
"""Records, queues or brokers listed of a body; the others are counted."""

Reader: TypeAlias = Callable[[bytes], str]


def shortened(text: str, chars_max: int) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def body_text(command: RemotingCommand, request_code: int | None) -> str:
    """The text for a frame's body.

    Args:
      request_code: of the frame, or of the request that it answers; None: unknown.
    """
    body = command.body
    if request_code is None:
        return plain_text(body)
    if not command.is_response and _is_batch(command, request_code):
        reader: Reader | None = _batch
    else:
        reader = _READERS.get((request_code, command.is_response))
    try:
        text = plain_text(body) if reader is None else reader(body)
    except (RemoteProtocolError, MissingPackageError):
        text = plain_text(body)
    return shortened(text, BODY_CHARS_MAX)


def _is_batch(command: RemotingCommand, request_code: int) -> bool:
    fields = command.ext_fields
    if request_code == RequestCode.SEND_BATCH_MESSAGE:
        return True
    is_v2 = request_code == RequestCode.SEND_MESSAGE_V2
    return (is_v2 and fields.get("m") == "true") or (
        request_code == RequestCode.SEND_MESSAGE and fields.get("batch") == "true"
    )


def plain_text(body: bytes) -> str:
    """Text as it is, anything else as hex; truncated."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = ""
    if text and (text[0] in "{[" or all(char.isprintable() or char in "\r\n\t" for char in text)):
        is_json = text[0] in "{["
        return shortened(text if is_json else _quoted(text), BODY_CHARS_MAX)
    return body[:HEX_BYTES_MAX].hex() + ("…" if len(body) > HEX_BYTES_MAX else "")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _listed(items: Iterable[str]) -> str:
    """The first items, and how many more there are."""
    all_of_them = list(items)
    more = len(all_of_them) - ITEMS_MAX
    return ", ".join([*all_of_them[:ITEMS_MAX], *([f"{more} more"] if more > 0 else [])])


# ---- JSON bodies ---------------------------------------------------------------------------------


def _heartbeat(body: bytes) -> str:
    data = HeartbeatData.from_body(body)
    parts = [f"heartbeat of {data.client_id}"]
    if data.producer_data_set:
        parts.append(f"producers {_listed(each.group_name for each in data.producer_data_set)}")
    for consumer in data.consumer_data_set[:ITEMS_MAX]:
        wanted = _listed(
            f"{each.topic} {each.expression_type} {_quoted(each.sub_string)}"
            for each in consumer.subscription_data_set
        )
        parts.append(
            f"consumer {consumer.group_name} {consumer.consume_type} {consumer.message_model} "
            f"{consumer.consume_from_where}: {wanted or 'nothing'}"
        )
    if data.heartbeat_fingerprint:
        parts.append(f"fingerprint {data.heartbeat_fingerprint}")
    if data.is_without_sub:
        parts.append("without subscriptions")
    return "; ".join(parts)


def _brokers(brokers: Iterable[BrokerData]) -> str:
    return _listed(
        f"{broker.broker_name} {number}={address}"
        for broker in brokers
        for number, address in sorted(broker.broker_addrs.items())
    )


def _route(body: bytes) -> str:
    route = TopicRouteData.from_body(body)
    queues = _listed(
        f"{each.broker_name} {each.read_queue_nums}r{each.write_queue_nums}w perm {each.perm}"
        for each in route.queue_datas
    )
    parts = [f"route: {queues}; at {_brokers(route.broker_datas)}"]
    if route.order_topic_conf:
        parts.append(f"order {route.order_topic_conf}")
    if route.topic_queue_mapping_by_broker:
        parts.append("with queue mappings")
    return "; ".join(parts)


def _cluster(body: bytes) -> str:
    info = ClusterInfo.from_body(body)
    clusters = _listed(
        f"{name} ({_listed(brokers)})" for name, brokers in info.cluster_addr_table.items()
    )
    return f"clusters: {clusters}; at {_brokers(info.broker_addr_table.values())}"


def _queues(queues: Iterable[MessageQueue]) -> str:
    return _listed(f"{each.topic}/{each.broker_name}/{each.queue_id}" for each in sorted(queues))


def _lock(body: bytes) -> str:
    asked = LockBatchRequestBody.from_body(body)
    return f"{asked.consumer_group} of {asked.client_id}: {_queues(asked.mq_set)}"


def _locked(body: bytes) -> str:
    return f"holds {_queues(LockBatchResponseBody.from_body(body).lock_ok_mq_set) or 'nothing'}"


def _consumers(body: bytes) -> str:
    found = GetConsumerListByGroupResponseBody.from_body(body)
    return f"consumers {_listed(found.consumer_id_list)}"


def _consumer_offsets(body: bytes) -> str:
    """Answer to 43: `offsetTable`, "topic@group" to queue ids and offsets."""
    table = _member(fastjson.loads(body), "offsetTable")
    return "offsets: " + _listed(
        f"{key} {_listed(f'{queue}:{offset}' for queue, offset in offsets.items())}"
        for key, offsets in table.items()
        if isinstance(offsets, dict)
    )


def _consume_stats(body: bytes) -> str:
    """Answer to 208: `offsetTable`, queues (objects as keys) to broker and consumer offsets."""
    table = _member(fastjson.loads(body), "offsetTable")
    found = []
    for queue, offsets in table.items():
        if isinstance(queue, fastjson.FrozenObject) and isinstance(offsets, dict):
            where = f"{queue.get('topic')}/{queue.get('brokerName')}/{queue.get('queueId')}"
            found.append(
                f"{where} {offsets.get('consumerOffset')} of {offsets.get('brokerOffset')}"
            )
    return f"offsets: {_listed(found) or 'none'}"


def _member(tree: object, name: str) -> dict[Any, Any]:
    found = tree.get(name) if isinstance(tree, dict) else None
    if not isinstance(found, dict):
        raise RemoteProtocolError(f"no object {name}")
    return found


# ---- records -------------------------------------------------------------------------------------


def _records(body: bytes) -> str:
    shown: list[str] = []
    position = count = 0
    while position < len(body):
        if len(body) - position < RECORD_SIZE_MIN:
            raise RemoteProtocolError("records with something after them", position)
        record = decode_record(
            body,
            position,
            check_crc=False,
            inflate=count < ITEMS_MAX,
            inflated_size_max=INFLATED_SIZE_MAX,
        )
        position += record.store_size
        count += 1
        if count <= ITEMS_MAX:
            shown.append(_record(record))
    more = f", {count - ITEMS_MAX} more" if count > ITEMS_MAX else ""
    return f"{count} record{'' if count == 1 else 's'}: {', '.join(shown)}{more}"


def _record(record: MessageExt) -> str:
    place = f"{record.topic}/{record.queue_id} @{record.queue_offset}"
    return f"{place} at {record.physical_offset} {_message(record.body, record.properties)}"


def _message(body: bytes, properties: dict[str, str]) -> str:
    shown = body[:TEXT_BYTES_MAX]
    text = plain_text(shown).rstrip("…") if shown else '""'
    more = f"…({len(body)} B)" if len(body) > len(shown) else ""
    named = " ".join(
        f"{name}={properties[name]}"
        for name in (PROPERTY_TAGS, PROPERTY_KEYS)
        if name in properties
    )
    return f"{text}{more}{' ' if named else ''}{named}"


def _batch(body: bytes) -> str:
    messages = list(itertools.islice(iter_batch(body), ITEMS_MAX + 1))
    listed = ", ".join(
        _message(one, properties_from_bytes(properties))
        for _, one, properties in messages[:ITEMS_MAX]
    )
    more = ", and more" if len(messages) > ITEMS_MAX else ""
    return f"batch of {listed}{more}"


_READERS: Final[dict[tuple[int, bool], Reader]] = {
    (RequestCode.HEART_BEAT, False): _heartbeat,
    (RequestCode.LOCK_BATCH_MQ, False): _lock,
    (RequestCode.UNLOCK_BATCH_MQ, False): _lock,
    (RequestCode.CHECK_TRANSACTION_STATE, False): _records,
    (RequestCode.LOCK_BATCH_MQ, True): _locked,
    (RequestCode.PULL_MESSAGE, True): _records,
    (RequestCode.LITE_PULL_MESSAGE, True): _records,
    (RequestCode.POP_MESSAGE, True): _records,
    (RequestCode.QUERY_MESSAGE, True): _records,
    (RequestCode.VIEW_MESSAGE_BY_ID, True): _records,
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, True): _consumers,
    (RequestCode.GET_ALL_CONSUMER_OFFSET, True): _consumer_offsets,
    (RequestCode.GET_CONSUME_STATS, True): _consume_stats,
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, True): _route,
    (RequestCode.GET_BROKER_CLUSTER_INFO, True): _cluster,
}
"""By request code, and whether it is the answer's body."""
