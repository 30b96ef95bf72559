"""Answers of name servers."""

from __future__ import annotations

import json

import pytest

from trocket.broker.cluster.registration_answer import (
    needs_registration,
    order_topics,
    query_data_version_request,
)
from trocket.broker.settings.config import BrokerConfig
from trocket.remoting.bodies import DataVersion
from trocket.remoting.codec import RemotingCommand, decode_frame
from trocket.remoting.errors import RemoteProtocolError

VERSION = DataVersion(timestamp=5, counter=2)


@pytest.mark.parametrize(
    ("code", "changed", "body", "needed"),
    [
        (0, "false", VERSION.to_body(), False),
        (0, "false", b"", False),
        (0, "true", VERSION.to_body(), True),
        (0, "false", DataVersion(timestamp=5, counter=1).to_body(), True),
        (1, "false", VERSION.to_body(), True),
    ],
)
def test_we_register_unless_the_name_server_has_our_version(code, changed, body, needed):
    answer = RemotingCommand(code, {"changed": changed}, body)
    assert needs_registration(answer, VERSION) is needed


def test_ordered_topics_come_with_the_answer_to_a_registration():
    assert order_topics(RemotingCommand(0)) == []
    assert order_topics(RemotingCommand(0, body=b'{"table":{"T":"broker-a:4"}}')) == ["T"]
    with pytest.raises(RemoteProtocolError):
        order_topics(RemotingCommand(0, body=b"[]"))


def test_the_question_for_the_version_is_the_recorded_one_of_5_5_0(golden):
    for line in (golden / "wire" / "register-5.5.0.jsonl").read_text().splitlines():
        frame = json.loads(line)
        if frame["dir"] == "request" and frame["request_code"] == 322:
            break
    theirs = decode_frame(bytes.fromhex(frame["frame_hex"]))
    config = BrokerConfig(broker_cluster_name="GoldenCluster", broker_name="broker-g")
    version = DataVersion.from_body(theirs.body)
    ours = query_data_version_request(config, "127.0.0.1:31110", version)
    assert (ours.code, ours.ext_fields) == (theirs.code, theirs.ext_fields)
    assert json.loads(ours.body) == json.loads(theirs.body)
