"""Every request that was recorded on its way to Apache's name servers, answered by ours.

The requests go in as they were recorded, in order, and our answers are compared with the recorded
ones. What is made equal before comparing is `normalised`; what is known to differ is DIFFERENT.

The recordings leave out repeated kinds of frames, so some registrations and KV items that an answer
rests on are not in them. `catch_up` then puts into our tables what the recorded answer shows to
have been there, before the request is served.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from trocket.common.steps import at_once
from trocket.namesrv.settings import SHOWN
from trocket.remoting import fastjson
from trocket.remoting.bodies import (
    ClusterInfo,
    QueueData,
    RegisterBrokerBody,
    TopicList,
    TopicRouteData,
)
from trocket.remoting.codec import NO_EXT_FIELDS, decode_frame, encode
from trocket.remoting.headers import RegisterBrokerRequestHeader, decode
from trocket.remoting.request_codes import RequestCode

from .builders import registration
from .harness import Harness

RECORDINGS = {
    "json-5.5.0": (29, 2),
    "json-4.9.7": (24, 3),
    "rocketmq-5.5.0": (29, 5),
    "rocketmq-4.9.7": (13, 2),
    "register-5.5.0": (11, 0),
    "register-4.9.7": (8, 0),
    "register-compressed-rejected-5.5.0": (2, 0),
}
"""By file: requests with a recorded answer, and those of them that needed `catch_up`."""

DIFFERENT = {
    # Apache takes any key, and does nothing with this one; ours has a list of settable keys.
    RequestCode.UPDATE_NAMESRV_CONFIG: (0, 16),
    # Apache's own broker and name server disagree on compression; ours reads the body all the same.
    RequestCode.REGISTER_BROKER: (1, 0),
}
"""Request code to (Apache's, our) response code where they differ on purpose."""

OLD_FAQ = "http://rocketmq.apache.org/docs/faq/"
NEW_FAQ = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"
HERE = {"bindAddress", "listenPort", "configStorePath", "kvConfigPath"}
"""Settings whose values are of the machine."""


def recorded_pairs(path):
    """(record of the request, record of the response or None) in the order of the requests."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    answers = {
        record["pair"]: record
        for record in records
        if record["dir"] == "response" and record["peer"].startswith("apache-namesrv")
    }
    return [
        (record, answers.get(record["pair"]))
        for record in records
        if record["dir"] == "request" and record["to"].startswith("apache-namesrv")
    ]


def frame_of(record):
    return decode_frame(bytes.fromhex(record["frame_hex"]))


FILLERS = ("filler-1", "filler-2")
"""Topics of a broker whose registration was not recorded: with one topic it would be refused."""


def register(harness, cluster, name, address):
    registered = registration(name, 0, FILLERS, cluster_name=cluster, broker_addr=address)
    at_once(harness.routes.register_broker_in_steps(registered, channel=harness.channel, now_ms=0))


def catch_up(harness, request, recorded):
    """Make up for registrations and items that were not recorded.

    Returns: whether there was anything to make up for.
    """
    code, routes, fields = request.code, harness.routes, request.ext_fields
    if code == RequestCode.REGISTER_BROKER and recorded.code == 0:
        header = decode(RegisterBrokerRequestHeader, fields)
        if recorded.body:
            harness.kv.put("ORDER_TOPIC_CONFIG", "deleted", "broker-g:1")
            for key in harness.kv.items("ORDER_TOPIC_CONFIG"):
                harness.kv.delete("ORDER_TOPIC_CONFIG", key)
        registered = RegisterBrokerBody.from_body(request.body).topic_config_serialize_wrapper
        if len(registered.topic_config_table) == 1 and not routes.broker_addrs(header.broker_name):
            register(harness, header.cluster_name, header.broker_name, header.broker_addr)
            return True
    elif code == RequestCode.GET_ROUTEINFO_BY_TOPIC and recorded.code == 0:
        if fields["topic"] in routes.topics:
            return False
        route = TopicRouteData.from_body(recorded.body)
        (broker,) = route.broker_datas
        if not routes.broker_addrs(broker.broker_name):
            register(harness, broker.cluster, broker.broker_name, broker.broker_addrs[0])
        return routes.register_topic(fields["topic"], route.queue_datas)
    elif code == RequestCode.GET_BROKER_CLUSTER_INFO:
        for name, broker in ClusterInfo.from_body(recorded.body).broker_addr_table.items():
            if not routes.broker_addrs(name):
                register(harness, broker.cluster, name, broker.broker_addrs[0])
                return True
    elif code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
        (name,) = routes.cluster_info().broker_addr_table
        missing = set(TopicList.from_body(recorded.body).topic_list) - set(routes.topics.topics())
        for topic_name in missing:
            routes.register_topic(topic_name, [QueueData(broker_name=name)])
        for topic_name in FILLERS:
            routes.delete_topic(topic_name)
        return bool(missing)
    elif code == RequestCode.GET_KV_CONFIG and recorded.code == 0:
        harness.kv.put(fields["namespace"], fields["key"], recorded.ext_fields["value"])
        return True
    return False


def without(tree, *names):
    """A JSON tree without these members."""
    if isinstance(tree, dict):
        return {k: without(v, *names) for k, v in tree.items() if k not in names}
    if isinstance(tree, list):
        return [without(item, *names) for item in tree]
    return tree


def normalised(answer, request_code):
    """The parts of an answer that must be equal.

    Not compared: version and language (ours), the order of JSON members and of topic lists, what
    only 5.x has (`enableActingMaster`, `stateVersion`), the address of the FAQ, the number of
    topics that the recorded server happened to have, settings that are of the machine.
    """
    fields = dict(answer.ext_fields)
    if request_code in (
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
    ):
        fields = {name: value.isdigit() for name, value in fields.items()}
    body = answer.body
    if request_code == RequestCode.GET_NAMESRV_CONFIG:
        settings = dict(line.split("=", 1) for line in body.decode().splitlines())
        body = {k: v for k, v in settings.items() if k in SHOWN - HERE}
    elif body:
        body = without(fastjson.loads(body), "enableActingMaster", "stateVersion")
        if "topicList" in body:
            body["topicList"] = sorted(body["topicList"])
    remark = answer.remark and answer.remark.replace(OLD_FAQ, NEW_FAQ)
    return (answer.code, answer.opaque, answer.flag, answer.serialize_type, remark, fields, body)


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_requests_are_answered_as_apache_answered_them(golden, name):
    harness = Harness()
    compared: Counter[int] = Counter()
    caught_up = 0
    for request_record, response_record in recorded_pairs(golden / "wire" / f"{name}.jsonl"):
        request = frame_of(request_record)
        if response_record is None:
            assert harness.serve(request).code == 0
            continue
        recorded = frame_of(response_record)
        caught_up += catch_up(harness, request, recorded)
        answer = harness.serve(request)
        compared[request.code] += 1
        assert decode_frame(encode(answer)).body == answer.body
        if DIFFERENT.get(RequestCode(request.code)) == (recorded.code, answer.code):
            continue
        ours, theirs = normalised(answer, request.code), normalised(recorded, request.code)
        if request.code == RequestCode.GET_NAMESRV_CONFIG:
            known = theirs[-1].keys() & ours[-1].keys()
            assert known
            ours, theirs = (
                (*side[:-1], {k: side[-1][k] for k in known}) for side in (ours, theirs)
            )
        assert ours == theirs
        if request_record["serialize"] == "JSON":
            has_fields = "extFields" in json.loads(response_record["header_text"])
            assert (answer.ext_fields is not NO_EXT_FIELDS) == has_fields
    assert (compared.total(), caught_up) == RECORDINGS[name]


def test_broker_ids_are_quoted_for_new_clients_and_bare_in_cluster_info(golden):
    harness = Harness()
    pairs = recorded_pairs(golden / "wire" / "json-5.5.0.jsonl")
    harness.serve(frame_of(pairs[0][0]))
    route = next(frame_of(request) for request, _ in pairs if request["code"] == 105)
    assert b'"brokerAddrs":{"0":"127.0.0.1:31110"}' in harness.serve(route).body
    route.version = 399
    assert b'"brokerAddrs":{0:"127.0.0.1:31110"}' in harness.serve(route).body
    route.ext_fields = {**route.ext_fields, "acceptStandardJsonOnly": "true"}
    assert b'"brokerAddrs":{"0":"127.0.0.1:31110"}' in harness.serve(route).body
    info = next(frame_of(request) for request, _ in pairs if request["code"] == 106)
    assert b'"brokerAddrs":{0:"127.0.0.1:31110"}' in harness.serve(info).body
