"""mqadmin against a broker: the outlines that are compared, and all commands of one version."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from trocket.interop.mqadmin import NOT_OURS, REFERENCE, AdminJvm, jobs
from trocket.interop.mqadmin_outline import differences, failure, keys, outline
from trocket.interop.mqadmin_table import COMMANDS, NOT_RUN, OF_REFUSED, Command, commands_of
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


def test_every_command_has_cells_or_a_reason_why_it_has_none() -> None:
    features = [command.feature for command in COMMANDS]
    assert len(features) == len(set(features))
    names = {command.name for command in COMMANDS}
    assert names.isdisjoint(NOT_RUN)
    assert len(names) + len(NOT_RUN) == 96
    assert len({command.name for command in commands_of("4.9.7")}) == 52
    assert all(command.codes for command in COMMANDS)


def test_a_command_that_comes_again_has_a_case_and_its_name_the_plain_one() -> None:
    plain = {command.name for command in COMMANDS if not command.case}
    assert plain == {command.name for command in COMMANDS}


def test_the_docs_name_each_command_that_is_refused() -> None:
    page = Path("docs/operations.md").read_text()
    section = page.partition("## Commands of mqadmin that are refused")[2].partition("\n## ")[0]
    refused = [command.name for command in COMMANDS if command.refused_by_ours == OF_REFUSED]
    assert refused
    assert [name for name in (*refused, *NOT_RUN) if f"`{name}`" not in section] == []


def test_each_text_of_a_refusal_has_a_row_that_says_why() -> None:
    page = Path("docs/quirks.md").read_text()
    refusing = [command for command in COMMANDS if command.refusal]
    assert refusing
    for command in refusing:
        assert f"\n| {command.refused_by_ours.removeprefix('docs/quirks.md: ')}" in page


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


def test_a_command_without_end_has_printed_enough_with_a_whole_line() -> None:
    (command,) = (command for command in COMMANDS if command.name == "clusterRT")
    assert command.enough.endswith(r"\R")  # Java's pattern for the end of a line
    enough = re.compile(command.enough.replace(r"\R", r"\n"))
    head = "#Cluster Name  #Broker Name  #RT  #successCount  #failCount\n"
    line = "DefaultCluster            broker-a                  1.50      2                 0    \n"
    assert enough.search(head + line)
    assert [end for end in range(len(line)) if enough.search(head + line[:end])] == []


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


def test_only_the_lines_that_a_command_names_are_compared() -> None:
    command = Command("consumerStatus", (307,), only="^#")
    assert outline("#Consumer jstack#\nThread-1 TID: 17\n", command, {}) == ["#Consumer jstack#"]


def test_a_javas_objects_are_compared_without_their_addresses() -> None:
    command = Command("consumerStatus", (307,))
    first = "offsetStore : org.apache.Store@715ad74\nlistener : Traced$$Lambda$9/0x0f@1a2b3c4d\n"
    second = "offsetStore : org.apache.Store@1f2e3d\nlistener : Traced$$Lambda$8/0x1e@4d3c2b1a\n"
    assert outline(first, command, {}) == outline(second, command, {})


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
    assert len(reported) == len(commands_of(VERSION))


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

    def test_what_is_refused_is_a_quirk_and_all_else_is_served(
        self, cells: dict[tuple[str, str], Cell]
    ) -> None:
        refused = {
            command.feature: command.refused_by_ours
            for command in COMMANDS
            if command.refused_by_ours
        }
        found = {
            feature: cell.detail
            for (broker, feature), cell in cells.items()
            if broker == "trocket" and cell.detail in refused.values()
        }
        assert found == refused

    def test_what_we_serve_passes(self, cells: dict[tuple[str, str], Cell]) -> None:
        counts = Counter(cell.verdict for (broker, _), cell in cells.items() if broker == "trocket")
        assert counts[Verdict.PASSED] >= 80
        for feature in ("consumerStatus", "consumerProgress-clients", "queryMsgTraceById"):
            assert cells["trocket", feature].detail == ""
        for feature in ("topicRoute", "queryMsgByKey", "sendMessage", "updateTopic", "printMsg"):
            assert cells["trocket", feature].verdict is Verdict.PASSED
        assert cells["trocket", "getNamesrvConfig"].verdict is Verdict.QUIRK


class TestOneJvm:
    """Admin.java by itself: no broker is asked."""

    pytestmark = with_java

    def test_the_list_that_it_prints_is_that_of_the_table(self, tmp_path: Path) -> None:
        admin = AdminJvm(VERSION, tmp_path)
        try:
            text, _ = admin.play([])
        finally:
            admin.close()
        listed = re.findall(r"(?m)^ {3}(\w+) {2,}", text)
        assert sorted(listed) == sorted({*NOT_RUN, *(command.name for command in COMMANDS)})

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
