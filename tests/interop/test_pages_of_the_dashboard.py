"""Apache's admin client asks what the pages of RocketMQ's Dashboard 2.1.0 ask.

What is expected was seen with Apache's broker 5.5.0, too: run this with TROCKET_INTEROP_PEER.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trocket.interop.maven import JAVA_OPENS, JAVA_SMALL, compile_java
from trocket.interop.peer import Cluster
from trocket.interop.process import LineProcess

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

VERSION = "5.5.0"
TIMEOUT_S = 240.0

EXPECTED = {
    "topic/examineTopicConfig": "2 6 {message.type=NORMAL}",
    "topic/list.queryTopicType": "{message.type=NORMAL}",
    "consumer/examineSubscriptionGroupConfig": "3 false",
    "topic/route": "1",
    "cluster/list": "3 rates",
    "cluster/brokerConfig": "true",
    "topic/list": "true",
    "topic/list, of the system": "true",
    "topic/stats": "8",
    "topic/queryTopicConsumerInfo": "[pages_group]",
    "consumer/group": "0",
    "consumer/queryTopicByConsumer": "8",
    "consumer/consumerConnection": (
        "JAVA CONSUME_PASSIVELY CLUSTERING [%RETRY%pages_group, Pages_Topic]"
    ),
    "consumer/consumerConnection, offline": "code 206",
    "consumer/consumerRunningInfo": "[%RETRY%pages_group, Pages_Topic]",
    "producer/producerConnection": "1",
    "message/queryMessageByTopic": "8",
    "message/queryMessageByTopicAndKey": "1",
    "message/viewMessage": "message-7 pages_group CONSUMED",
    "message/consumeMessageDirectly": "CR_SUCCESS",
    "consumer/resetOffset": "2",
    "consumer/deleteSubGroup": "done",
    "topic/deleteTopic": "false",
}
"""Answers by question, in the order of the program's lines."""


def test_every_page_of_the_dashboard_gets_its_answers(
    make_cluster: Callable[[], Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster()
    cluster.start()
    folder = tmp_path / "admin"
    folder.mkdir()
    class_path = compile_java(VERSION, folder="admin", jar_set="tools")
    command = ["java", *JAVA_SMALL, *JAVA_OPENS, f"-Duser.home={folder}", "-cp", class_path]
    lines: list[str] = []
    program = LineProcess(
        [*command, "Pages", cluster.namesrv_address],
        folder=folder,
        name="pages",
        on_line=lines.append,
    )
    try:
        program.wait_line(lambda line: line == "end", timeout_s=TIMEOUT_S)
    finally:
        program.kill()
    answers = dict(line.split(": ", 1) for line in lines if line.partition(": ")[0] in EXPECTED)
    assert answers == EXPECTED
