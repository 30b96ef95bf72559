"""The figures and the page of a chaos run."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

from rich.console import Console

from trocket.bench.chaos_clients import Crowd
from trocket.bench.chaos_ledger import Fault, Ledger
from trocket.bench.chaos_page import BARS_MAX, clock, page
from trocket.bench.chaos_report import Report, made_report, show

VOID = {"meta", "rect", "polygon"}


class Checker(HTMLParser):
    """Finds tags that are not closed, and what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.titles: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [name for name, _ in attributes if name in ("src", "href", "srcset")]
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["title"]:
            self.titles.append(data)


def checked(report: Report) -> Checker:
    text = page(report).decode()
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert checker.fetched == []
    assert not {"script", "link", "img", "iframe"} & {*checker.tags}
    assert "http" not in text
    assert "url(" not in text
    assert "@import" not in text
    return checker


def played() -> Ledger:
    """A ledger of two clients over 100 s, with two faults and a gap."""
    ledger = Ledger(["java"], ["go"], key_count=1)
    ledger.faults += [
        Fault("kill-master", "master", 40, 45, takes_back=True),
        Fault("freeze-consumer", "take-go", 80, 85, problem="<b>it hangs</b> & stays"),
    ]
    for number in range(100):
        at_s = number + (9 if number >= 41 else 0)
        ledger.confirm(("java", 0), number, number, at_s)
        ledger.take("go", ("java", 0), number, number, at_s + 0.5)
    ledger.take("go", ("java", 0), 99, 99, 110)
    ledger.verdict({("java", 0): list(range(100))})
    return ledger


def made(ledger: Ledger, *problems: str, seconds: float = 120.0) -> Report:
    return made_report(
        ledger,
        seed=7,
        minutes=2.0,
        seconds=seconds,
        errors={"send-java": {"<refused>": 3}},
        problems=list(problems),
        missing={"cpp": "no wheel for this machine"},
    )


def test_the_figures_of_a_run() -> None:
    report = made(played())
    assert report.is_good
    assert (report.kills, report.deliveries, report.verdict.confirmed) == (1, 101, 100)
    assert report.by_reason == {"after freeze-consumer": 1}
    sends = report.clients["send-java"]
    assert (sends.count, sends.longest_gap_s, sends.gap_from_s) == (100, 10.0, 40.0)
    assert sends.gap_during == ["kill-master of master"]
    assert (sends.per_second[39:52], len(sends.per_second)) == ([1, 1] + [0] * 9 + [1, 1], 109)


def test_a_problem_or_a_loss_makes_a_run_fail() -> None:
    assert not made(played(), "the set did not become whole").is_good
    ledger = played()
    ledger.verdict({})
    assert not made(ledger).is_good


def test_the_json_has_all_figures() -> None:
    values = json.loads(json.dumps(made(played()).as_json()))
    assert values["good"] is True
    assert values["kills"] == 1
    assert values["verdict"]["lost"] == 0
    assert values["clients"]["take-go"]["count"] == 101
    assert [fault["kind"] for fault in values["faults"]] == ["kill-master", "freeze-consumer"]


def test_the_page_needs_nothing_else_and_names_all_faults_and_gaps() -> None:
    found = checked(made(played()))
    assert "kill-master of master at 0:40, 5.0 s" in found.titles
    assert "10.0 s from 0:40 on" in found.titles
    assert found.tags.count("svg") == 4 + 2  # lanes of faults, and clients


def test_texts_of_others_are_escaped() -> None:
    text = page(made(played(), "<i>problem</i>")).decode()
    assert "<b>it hangs" not in text
    assert "&lt;b&gt;it hangs&lt;/b&gt; &amp; stays" in text
    assert "&lt;i&gt;problem" in text
    assert "&lt;refused&gt;" in text


def test_a_page_says_at_once_whether_something_was_lost() -> None:
    assert "Nothing was lost" in page(made(played())).decode()
    ledger = played()
    ledger.verdict({})
    text = page(made(ledger)).decode()
    assert "Something went wrong" in text
    assert "lost: java/0 0; java/0 1" in text


def test_an_empty_run_has_a_page() -> None:
    checked(made(Ledger([], [], key_count=1), seconds=0.0))


def test_the_page_of_hours_stays_small() -> None:
    ledger = Ledger(["java"], ["go"], key_count=1)
    for number in range(3 * 3600):
        ledger.confirm(("java", 0), number, number, float(number))
    text = page(made(ledger, seconds=3 * 3600.0)).decode()
    assert text.count(",") < 4 * BARS_MAX
    assert "at most 1 a second" in text


def test_moments_of_a_run() -> None:
    assert [clock(at_s) for at_s in (0, 59.6, 3605)] == ["0:00", "1:00", "60:05"]


def test_the_printed_report_has_what_went_wrong() -> None:
    console = Console(record=True, width=200)
    with console.capture() as capture:
        show(made(played(), "member-1 did not return"), console)
    text = capture.get()
    assert "FAILED: 2 minutes, seed 7: 2 faults, 1 kills; 100 confirmed" in text
    assert "problem: member-1 did not return" in text
    assert "left out: cpp: no wheel for this machine" in text
    assert "send-java: 3 times <refused>" in text


# ---- lines of clients --------------------------------------------------------------------


def crowd(folder: Path) -> Crowd:
    return Crowd(["java", "go"], "127.0.0.1:9876", folder, pause_ms=100)


def test_reports_of_clients_are_noted(tmp_path: Path) -> None:
    clients = crowd(tmp_path)
    clients.line("send-java", "sent 1 0 1 0")
    clients.line("send-go", "sent 0 0 -1 0")
    clients.line("take-go", "took Chaos-java 1 0 1:0")
    clients.line("take-go", "took Chaos-go 0 0 0:0")
    assert clients.ledger.confirmed_count == 2
    assert clients.ledger.missing() == {"java": 2, "go": 0}
    assert clients.crashes == []


def test_lines_of_a_virtual_machine_count_as_nothing(tmp_path: Path) -> None:
    clients = crowd(tmp_path)
    for line in (
        "OpenJDK 64-Bit Server VM warning: Sharing is only supported for boot loader classes",
        "[0.011s][warning][cds] shared class paths mismatch",
        "RocketMQLog:WARN No appenders could be found for logger",
        "ready",
        "done",
        "sent",
        "took nothing",
        "",
    ):
        clients.line("send-java", line)
        clients.line("take-java", line)
    assert clients.ledger.confirmed_count == 0
    assert clients.errors == {}
    assert clients.crashes == []


def test_failed_sends_are_counted_by_their_text_without_numbers(tmp_path: Path) -> None:
    clients = crowd(tmp_path)
    for port in (10911, 10912):
        clients.line("send-java", f"failed connect to 127.0.0.1:{port} failed after 3000 ms")
    assert clients.errors == {"send-java": {"connect to N failed after N": 2}}


def test_reports_that_cannot_be_are_crashes(tmp_path: Path) -> None:
    clients = crowd(tmp_path)
    clients.line("send-java", "sent 0 5 0 0")
    clients.line("take-java", "took Unknown 0 0 0:0")
    assert len(clients.crashes) == 2
