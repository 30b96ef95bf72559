"""mqadmin against a broker: the outlines that are compared, and all commands of one version."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from trocket.interop.mqadmin import NOT_OURS, REFERENCE, AdminJvm, jobs
from trocket.interop.mqadmin_outline import differences, failure, keys, outline
from trocket.interop.mqadmin_table import COMMANDS, Command, commands_of
from trocket.interop.process import PeerError
from trocket.interop.report.cells import Cell, Verdict

VERSION = "5.5.0"

STATUS = """\
#Broker Name     #QID  #Min Offset      #Max Offset        #Last Updated
broker-a         0     0                8                  2026-11-21 06:03:51,204

broker-a         1     0                9                  2026-11-21 06:03:51,217
Topic Put TPS: 0.5
"""
REFUSED = """\
org.apache.rocketmq.tools.command.SubCommandException: TopicStatusSubCommand command failed
\tat org.apache.rocketmq.tools.command.topic.TopicStatusSubCommand.execute(X.java:104)
Caused by: org.apache.rocketmq.client.exception.MQClientException: CODE: 17  DESC: No topic route
See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.
\t... 1 more
"""


# ---- without Java ------------------------------------------------------------------------


def test_there_are_69_commands_each_once() -> None:
    names = [command.name for command in COMMANDS]
    assert len(names) == len(set(names)) == 69
    assert 40 < len(commands_of("4.9.7")) < 60
    assert all(command.codes for command in COMMANDS)


def test_an_outline_has_no_times_rates_addresses_or_ids() -> None:
    command = Command("topicStatus", (202,))
    lines = outline(STATUS, command, {"broker-a": "NAME"})
    assert lines == [
        "#Broker Name #QID #Min Offset #Max Offset #Last Updated",
        "NAME 0 0 8 TIME",
        "NAME 1 0 9 TIME",
        "Topic Put TPS: RATE",
    ]
    assert lines[1] != outline(STATUS.replace(" 8 ", " 7 "), command, {"broker-a": "NAME"})[1]
    rough = replace(command, numbers=False)
    assert outline(STATUS, rough, {}) == outline(STATUS.replace(" 8 ", " 7 "), rough, {})
    assert differences(lines, lines[:-1]) == ["- Topic Put TPS: RATE"]
    assert keys(["a = 1", "b : 2", "c: 3", "d e"]) == {"a", "b", "c", "d e"}
    place = "MSGID: 7F000001000018B4AAC2000000000001 127.0.0.1:4711 1700000000000 commitLogOffset=9"
    assert outline(place, command, {}) == ["MSGID: ID CLIENT LONG commitLogOffset= PLACE"]


def test_topics_of_rocketmqs_own_are_left_out_where_brokers_may_differ_in_them() -> None:
    printed = "Orders\nTBW102\nRMQ_SYS_TRACE_TOPIC\nbroker-a\n%RETRY%TOOLS_CONSUMER\n%RETRY%mine\n"
    command = Command("topicList", (206,), own_topics=True)
    assert outline(printed, command, {"broker-a": "NAME"}) == ["%RETRY%mine", "Orders"]


def test_why_a_command_failed_is_what_it_prints() -> None:
    assert failure(STATUS) == ""
    assert failure("timerSkipUnknownError = false\n") == ""
    why = "org.apache.rocketmq.client.exception.MQClientException: CODE: 17  DESC: No topic route"
    assert failure(REFUSED) == why
    assert len(outline(REFUSED, Command("topicStatus", (202,)), {})) == 2
    assert failure("The sub command nonsense not exist.\n") != ""


def test_maps_are_compared_whatever_their_order() -> None:
    command = Command("printMsg", (11,))
    first, second = (f"properties={{{text}}}, x" for text in ("B=1, A=two", "A=two, B=1"))
    assert outline(first, command, {}) == outline(second, command, {})
    assert outline(first, command, {}) != outline(first.replace("two", "too"), command, {})


def test_keys_are_what_stands_before_the_sign() -> None:
    assert keys(["a = 1", "b = 2", "=====A====="]) == {"a", "b", "=====A====="}


def test_an_external_cluster_is_left_alone(tmp_path: Path) -> None:
    (job,) = jobs(["rocketmq://192.0.2.1:9876"], [VERSION])
    reported: list[Cell] = []
    job.play(job.owed, tmp_path, reported.append)
    assert {(cell.verdict, cell.detail) for cell in reported} == {(Verdict.SKIPPED, NOT_OURS)}
    assert len(reported) == 69


# ---- with Java ---------------------------------------------------------------------------

with_java = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Cell]:
    """The cells of ours and of Apache's, by broker and command."""
    cells: list[Cell] = []
    for number, job in enumerate(jobs(["trocket", REFERENCE], [VERSION])):
        job.play(job.owed, tmp_path_factory.mktemp(f"job-{number}"), cells.append)
        assert {cell.name for cell in job.owed} <= {cell.name for cell in cells}
    return {(cell.broker, cell.feature): cell for cell in cells}


class TestAllCommands:
    """One session with each broker."""

    pytestmark = with_java

    def test_no_command_prints_anything_else_than_with_apache(
        self, cells: dict[tuple[str, str], Cell]
    ) -> None:
        failed = [cell for cell in cells.values() if cell.verdict is Verdict.FAILED]
        assert [(cell.name, cell.detail, cell.frames) for cell in failed] == []

    def test_what_is_skipped_names_a_code_that_is_not_served(
        self, cells: dict[tuple[str, str], Cell]
    ) -> None:
        skipped = [cell for cell in cells.values() if cell.verdict is Verdict.SKIPPED]
        assert {cell.broker for cell in skipped} <= {"trocket"}
        for cell in skipped:
            assert cell.detail.startswith("needs request code ")
            assert cell.detail.endswith(", not served yet")

    def test_what_we_serve_passes(self, cells: dict[tuple[str, str], Cell]) -> None:
        counts = Counter(cell.verdict for (broker, _), cell in cells.items() if broker == "trocket")
        assert counts[Verdict.PASSED] >= 30
        for feature in ("topicRoute", "queryMsgByKey", "sendMessage", "updateTopic", "printMsg"):
            assert cells["trocket", feature].verdict is Verdict.PASSED
        assert cells["trocket", "getNamesrvConfig"].verdict is Verdict.QUIRK


class TestOneJvm:
    """Admin.java by itself: no broker is asked."""

    pytestmark = with_java

    def test_commands_follow_each_other_and_may_be_wrong(self, tmp_path: Path) -> None:
        admin = AdminJvm(VERSION, tmp_path)
        try:
            text, is_whole = admin.play(["nonsense"])
            assert (text.strip(), is_whole) == ("The sub command nonsense not exist.", True)
            text, is_whole = admin.play(["topicRoute", "-t", "T", "-n", "127.0.0.1:9"])
            assert is_whole
            assert "127.0.0.1:9" in failure(text)
            text, is_whole = admin.play(["topicRoute", "-x"])
            assert "usage: mqadmin topicRoute" in failure(text)
            assert (is_whole, admin.has_ended) == (True, True)
            with pytest.raises(PeerError, match="mqadmin-5"):
                admin.play(["topicList"])
        finally:
            admin.close()
