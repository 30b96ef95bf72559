"""Scripts for the name server: registration of brokers, routes, lists of topics."""

from __future__ import annotations

import zlib
from functools import partial

from ...remoting.codec import SerializeType
from ...remoting.request_codes import RequestCode as Code
from .builders import Names, json_body
from .normalise import any_broker, java_exception_text, only, place, unordered
from .request import BodyKind, FieldValue, Request, Script, Server

NAMESRV = Server.NAMESRV
BROKER = "broker"
"""The connection of the played broker; the registration ends with it."""

VERSION = {"counter": 7, "stateVersion": 0, "timestamp": 1_700_000_000_000}
OLD_CLIENT = 395
"""MQVersion ordinal V4_9_3: such clients read map keys without quotes."""


def topic_config(name: str, **changed: object) -> dict[str, object]:
    """A TopicConfig as a broker registers it."""
    return {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 3,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": 3,
        **changed,
    }


def registration(names: Names, body: bytes, **changed: FieldValue) -> dict[str, FieldValue]:
    """The header of REGISTER_BROKER."""
    return {
        **identity(names),
        "haServerAddr": "192.0.2.7:10912",
        "compressed": False,
        "enableActingMaster": False,
        "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,
        **changed,
    }


def identity(names: Names, broker_id: int = 0) -> dict[str, FieldValue]:
    port = 10911 if names.prefix.endswith("j") else 20911
    return {
        "brokerName": names("a"),
        "brokerAddr": f"192.0.2.7:{port + broker_id}",
        "clusterName": names("cluster"),
        "brokerId": broker_id,
    }


def registration_body(topics: list[dict[str, object]]) -> bytes:
    """The body of REGISTER_BROKER."""
    return json_body(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": VERSION,
                "mappingDataVersion": VERSION,
                "topicConfigTable": {str(topic["topicName"]): topic for topic in topics},
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            },
        }
    )


asked = partial(Request, server=NAMESRV)
bad = partial(asked, erroneous=True)
refused = partial(bad, expect=1, normalisers=(java_exception_text(),))
route = partial(
    asked,
    code=Code.GET_ROUTEINFO_BY_TOPIC,
    body_kind=BodyKind.JSON,
    normalisers=(unordered("body.brokerDatas", "body.queueDatas"),),
)
"""Builders of requests to the name server: valid, erroneous, malformed, and for a route."""


def topic_list(name: str, code: Code, names: Names, **fields: FieldValue) -> Request:
    """A request for a list of topics, of which this script's are compared."""
    mine = (
        only(names.prefix, "body.topicList"),
        unordered("body.topicList"),
        any_broker("body.brokerAddr"),
    )
    return asked(name, code, fields, body_kind=BodyKind.JSON, normalisers=mine)


def brokers(header: SerializeType) -> Script:
    """A broker registers, sends heartbeats, loses its write permission and unregisters."""
    names = Names("brokers", header)
    steps = (
        *_registrations(names),
        *_signs_of_life(names),
        *_members(names),
        route(name="of a topic", fields={"topic": names("plain")}),
        route(name="keys for an old client", fields={"topic": names("plain")}, version=OLD_CLIENT),
        bad("a topic that nobody knows", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}, expect=17),
        refused("without a topic", Code.GET_ROUTEINFO_BY_TOPIC),
        topic_list("all", Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, names),
        topic_list("of a cluster", Code.GET_TOPICS_BY_CLUSTER, names, cluster=names("cluster")),
        topic_list("system topics", Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, names),
        topic_list("unit", Code.GET_UNIT_TOPIC_LIST, names),
        topic_list("unit subscription", Code.GET_HAS_UNIT_SUB_TOPIC_LIST, names),
        topic_list("unit subscription only", Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, names),
        *_permissions(names),
        *_departures(names),
    )
    return Script("brokers", header, steps)


def _registrations(names: Names) -> tuple[Request, ...]:
    code = Code.REGISTER_BROKER
    body = registration_body(
        [
            topic_config(names("plain")),
            topic_config(names("unit"), topicSysFlag=1),
            topic_config(names("unitsub"), topicSysFlag=2),
            topic_config(names("both"), topicSysFlag=3, perm=4),
        ]
    )
    fields = registration(names, body)
    slave = {**fields, **identity(names, 1)}
    nonsense = b"\x01nonsense"
    on = partial(asked, connection=BROKER)
    return (
        on("a broker with topics", code, fields, body),
        on("its slave", code, slave, body),
        bad("a wrong checksum", code, {**fields, "bodyCrc32": 1}, body, expect=1),
        refused("a body that is no JSON", code, registration(names, nonsense), nonsense),
        refused("without an address", code, {"brokerName": names("a")}),
    )


def _signs_of_life(names: Names) -> tuple[Request, ...]:
    query, heartbeat = Code.QUERY_DATA_VERSION, Code.BROKER_HEARTBEAT
    who = identity(names)
    missing = {**who, "brokerAddr": "192.0.2.9:1"}
    other = json_body({**VERSION, "counter": 8})
    version = json_body(VERSION)
    return (
        asked("the same version", query, who, version, body_kind=BodyKind.JSON),
        asked("another version", query, who, other, body_kind=BodyKind.JSON),
        bad("a broker that nobody knows", query, missing, version, body_kind=BodyKind.JSON),
        refused("a version that is no JSON", query, who, b"{"),
        refused("without an address", query, {"brokerName": names("a")}, version),
        asked("a broker", heartbeat, who),
        asked("oneway", heartbeat, who, oneway=True, expect=None),
        bad("a broker that nobody knows", heartbeat, missing),
        refused("without an address", heartbeat, {"brokerName": names("a")}),
    )


def _members(names: Names) -> tuple[Request, ...]:
    members, cluster = Code.GET_BROKER_MEMBER_GROUP, Code.GET_BROKER_CLUSTER_INFO
    known = {"clusterName": names("cluster"), "brokerName": names("a")}
    missing = {"clusterName": names("cluster"), "brokerName": names("missing")}
    mine = (only(names.prefix, "body.brokerAddrTable", "body.clusterAddrTable"),)
    info = partial(asked, code=cluster, body_kind=BodyKind.JSON, normalisers=mine)
    return (
        asked("two members", members, known, body_kind=BodyKind.JSON),
        bad("a name that nobody knows", members, missing, body_kind=BodyKind.JSON),
        refused("without a name", members),
        info(name="with the broker"),
        info(name="a body that nobody reads", body=b"{", erroneous=True),
    )


def _permissions(names: Names) -> tuple[Request, ...]:
    wipe, add = Code.WIPE_WRITE_PERM_OF_BROKER, Code.ADD_WRITE_PERM_OF_BROKER
    known = {"brokerName": names("a")}
    missing = {"brokerName": names("missing")}
    topic = {"topic": names("plain")}
    return (
        asked("of a broker", wipe, known),
        route(name="a topic without write permission", fields=topic),
        asked("to a broker", add, known),
        route(name="a topic with write permission again", fields=topic),
        bad("of a broker that nobody knows", wipe, missing),
        bad("to a broker that nobody knows", add, missing),
        refused("without a name", wipe),
        refused("without a name", add),
    )


def _departures(names: Names) -> tuple[Request, ...]:
    code = Code.UNREGISTER_BROKER
    who = identity(names)
    gone = {"topic": names("plain")}
    return (
        asked("the slave", code, identity(names, 1)),
        asked("the master", code, who),
        bad("a broker that is not there", code, {**who, "brokerAddr": "192.0.2.9:1"}),
        asked("the slave, which went", code, identity(names, 1)),
        asked("the master, which went", code, who),
        bad(
            "a topic whose brokers went",
            Code.GET_ROUTEINFO_BY_TOPIC,
            gone,
            expect=17,
            until=lambda answer: answer.code == 17,
        ),
        # Last, because 5.x answers at once and acts later on all that wait, as one batch. This one
        # has no cluster there: a NullPointerException ends its batch, and the others in it are
        # lost. Source: BatchUnregistrationService.java, RouteInfoManager.java (BrokerAddrInfo).
        refused("without an address", code, {"brokerName": names("a")}),
    )


def topics(header: SerializeType) -> Script:
    """Topics registered and deleted by an administrator, and lists for missing names."""
    names = Names("nstopics", header)
    body = registration_body([topic_config(names("plain")), topic_config(names("other"))])
    queue = {
        "brokerName": names("a"),
        "perm": 6,
        "readQueueNums": 5,
        "topicSysFlag": 0,
        "writeQueueNums": 5,
    }
    queues = json_body({"brokerDatas": [], "filterServerTable": {}, "queueDatas": [queue]})
    register, delete = Code.REGISTER_TOPIC_IN_NAMESRV, Code.DELETE_TOPIC_IN_NAMESRV
    cluster = {"cluster": names("missing")}
    fresh = {"topic": names("fresh")}
    of_cluster = {**fresh, "clusterName": names("cluster")}
    gone = {"topic": names("plain")}
    unread = partial(
        bad,
        "fields that nobody reads",
        fields=cluster,
        body_kind=BodyKind.JSON,
        normalisers=(
            only(names.prefix, "body.topicList"),
            unordered("body.topicList"),
            any_broker("body.brokerAddr"),
        ),
    )
    fields = registration(names, body)
    steps = (
        asked("a broker with a topic", Code.REGISTER_BROKER, fields, body, connection=BROKER),
        asked("a topic", register, fresh, queues),
        route(name="a topic that was registered by hand", fields=fresh, since="5.0.0"),
        bad("no queues", register, {"topic": names("none")}),
        refused("a body that is no JSON", register, {"topic": names("none")}, b"nonsense"),
        refused("without a topic", register, body=queues),
        asked("of a cluster", delete, of_cluster),
        asked("everywhere", delete, gone),
        bad("a topic that was deleted", Code.GET_ROUTEINFO_BY_TOPIC, gone, expect=17),
        bad("a topic that is not there", delete, {"topic": names("missing")}),
        refused("without a topic", delete),
        bad(
            "a cluster that nobody knows",
            Code.GET_TOPICS_BY_CLUSTER,
            cluster,
            body_kind=BodyKind.JSON,
        ),
        refused("without a cluster", Code.GET_TOPICS_BY_CLUSTER),
        unread(code=Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        unread(code=Code.GET_SYSTEM_TOPIC_LIST_FROM_NS),
        unread(code=Code.GET_UNIT_TOPIC_LIST),
        unread(code=Code.GET_HAS_UNIT_SUB_TOPIC_LIST),
        unread(code=Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
    )
    return Script("topics of the name server", header, steps)


def configuration(header: SerializeType) -> Script:
    """KV items and the name server's own settings."""
    names = Names("kv", header)
    item = {"namespace": names("space"), "key": names("key")}
    missing = {**item, "key": names("missing")}
    put, get, delete = Code.PUT_KV_CONFIG, Code.GET_KV_CONFIG, Code.DELETE_KV_CONFIG
    space, update = Code.GET_KVLIST_BY_NAMESPACE, Code.UPDATE_NAMESRV_CONFIG
    show = partial(
        asked,
        code=Code.GET_NAMESRV_CONFIG,
        body_kind=BodyKind.PROPERTIES,
        normalisers=(
            place("body.bindAddress", "body.configStorePath", "body.kvConfigPath"),
            place("body.listenPort"),
        ),
    )
    steps = (
        asked("an item", put, {**item, "value": "a=b;ü"}),
        asked("an item", get, item),
        bad("an item that is not there", get, missing, expect=22),
        refused("without a key", get, {"namespace": "n"}),
        asked("a namespace", space, {"namespace": names("space")}, body_kind=BodyKind.JSON),
        bad("a namespace that nobody uses", space, {"namespace": names("missing")}, expect=22),
        refused("without a namespace", space),
        asked("an item", delete, item),
        bad("an item that is not there", delete, item),
        refused("without a key", delete, {"namespace": "n"}),
        bad("an item that was deleted", get, item, expect=22),
        refused("without a value", put, missing),
        asked("a key", update, body=b"orderMessageEnable=false\n"),
        bad("a key that must not be changed", update, body=b"kvConfigPath=/tmp/x\n", expect=16),
        bad("a key that nobody knows", update, body=b"nonsense=1\n", expect=1),
        bad("nothing", update),
        asked("a range", update, body=b"scanNotActiveBrokerInterval=6000\n"),
        asked("the usual value", update, body=b"# usual\nscanNotActiveBrokerInterval = 5000\n"),
        bad(
            "a value that is no number",
            update,
            body=b"scanNotActiveBrokerInterval=soon\n",
            expect=1,
        ),
        bad(
            "a right key and a wrong one",
            update,
            body=b"orderMessageEnable=false\nnonsense=1\n",
            expect=1,
        ),
        show(name="all keys"),
        show(name="fields that nobody reads", fields={"key": "listenPort"}, erroneous=True),
    )
    return Script("configuration", header, steps)


SCRIPTS = (brokers, topics, configuration)
"""Each creates a script for one kind of header."""
