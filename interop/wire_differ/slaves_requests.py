"""Scripts for the requests of slaves to their master, except those for topics and groups."""

from __future__ import annotations

from functools import partial

from ...remoting.codec import SerializeType
from ...remoting.request_codes import RequestCode as Code
from .builders import (
    Names,
    bad,
    create_group,
    create_topic,
    properties,
    pull_until,
    send_fields,
    unique_key,
)
from .normalise import counts, data_versions, only, physical_offsets, place, without
from .request import BodyKind, Request, Script
from .sends_requests import PLACE, send

_CODES = (
    Code.GET_ALL_CONSUMER_OFFSET,
    Code.GET_ALL_DELAY_OFFSET,
    Code.GET_TIMER_METRICS,
    Code.GET_ALL_MESSAGE_REQUEST_MODE,
)


OWN_PLACES = ("bindAddress", "haListenPort", "listenPort", "storePathRootDir")
"""Keys that say where one of the two brokers is."""

OWN_VALUES = (
    "storePathCommitLog", "mappedFileSizeCommitLog", "timerFlushIntervalMs",
    "registerBrokerTimeoutMills", "metricsExporterType", "metricsPromExporterPort",
)  # fmt: skip
"""Keys that the two brokers are started with, or whose default is another one in 4.9.7."""


def slaves(header: SerializeType) -> Script:
    """Offsets, timers and the state of replication; played before any timer message is sent."""
    names = Names("slaves", header)
    topic, group = names("topic"), names("group")
    offset = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 1}
    text = properties(UNIQ_KEY=unique_key(names, 1))
    tables = partial(
        Request,
        body_kind=BodyKind.JSON,
        normalisers=(
            data_versions("body.dataVersion"),
            only(names.prefix, "body.offsetTable", "body.groupTopicMap", "body.pullOffsetTable"),
            only(names.prefix, "body.timingCount"),
        ),
    )
    status = partial(
        Request,
        code=Code.GET_BROKER_HA_STATUS,
        body_kind=BodyKind.JSON,
        normalisers=(physical_offsets("body.masterCommitLogMaxOffset"),),
    )
    timers = partial(
        Request,
        code=Code.GET_TIMER_CHECK_POINT,
        body_kind=BodyKind.TIMER_CHECKPOINT,
        normalisers=(counts("body.read_time_ms"), data_versions("body.version")),
        since="5.5.0",
    )
    steps = (
        create_topic(topic),
        create_group(group),
        send(name="a message", fields=send_fields(topic, text), normalisers=PLACE),
        pull_until(group, topic, "the message", 1),
        Request("an offset", Code.UPDATE_CONSUMER_OFFSET, offset),
        tables("offsets of consumers", Code.GET_ALL_CONSUMER_OFFSET, since="5.5.0"),
        tables("offsets of delay levels", Code.GET_ALL_DELAY_OFFSET, since="5.5.0"),
        tables("counts of timer messages", Code.GET_TIMER_METRICS),
        tables("modes of requests", Code.GET_ALL_MESSAGE_REQUEST_MODE),
        timers(name="how far timers are"),
        status(name="of a master without slaves"),
        # Servers ignore fields and body of such a request.
        *(tables("with a body that is no JSON", code, body=b"{", erroneous=True, since="5.5.0")
          for code in _CODES),
        timers(name="with a body that is no JSON", body=b"{", erroneous=True),
        status(name="with a body that is no JSON", body=b"{", erroneous=True),
    )  # fmt: skip
    return Script("slaves", header, steps)


def settings(header: SerializeType) -> Script:
    """The configuration of the broker, shown and changed."""
    shown = partial(
        Request,
        code=Code.GET_BROKER_CONFIG,
        body_kind=BodyKind.PROPERTIES,
        normalisers=(
            place("fields.version", *(f"body.{key}" for key in OWN_PLACES)),
            *(without(key, "body") for key in OWN_VALUES),
        ),
    )
    change, wrong = Code.UPDATE_BROKER_CONFIG, partial(bad, code=Code.UPDATE_BROKER_CONFIG)
    steps = (
        Request("a number", change, body=b"transactionCheckMax=14\n"),
        Request("two keys and a comment", change,
                body=b"# both\ntransactionCheckMax = 15\nrejectTransactionMessage=false\n"),
        Request("a permission", change, body=b"brokerPermission=6\n"),
        Request("nothing", change),
        wrong("a key that RocketMQ does not have", body=b"nonsense=1\n", expect=1),
        wrong("a key that has no effect", body=b"flushCommitLogLeastPages=4\n", expect=1),
        wrong("a key that is read at the start", body=b"haListenPort=10999\n", expect=16),
        wrong("a value that is no number", body=b"transactionCheckMax=many\n", expect=1),
        wrong("a value out of range", body=b"transactionCheckMax=0\n", expect=1),
        wrong("a right key and a wrong one",
              body=b"transactionCheckMax=16\nnonsense=1\n", expect=1),
        wrong("a path that RocketMQ refuses", body=b"rocketmqHome=/x\n", expect=16),
        Request("the usual value", change, body=b"transactionCheckMax=15\n"),
        shown(name="the keys of the broker"),
        shown(name="with a body that is no JSON", body=b"{", erroneous=True),
    )  # fmt: skip
    return Script("settings", header, steps)


SCRIPTS = (slaves, settings)
"""Each creates a script for one kind of header."""
