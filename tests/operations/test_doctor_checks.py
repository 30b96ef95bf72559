"""Each check of `trocket doctor`: what it finds in facts, and that it is content with good ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trocket.native.path_counts import TROUBLE_KEY, PathCounts
from trocket.operations.doctor.checks import CHECKS, Result, judge
from trocket.operations.doctor.facts import (
    TAKEN,
    BrokerFacts,
    BrokerKey,
    ClockReading,
    Facts,
    GroupFacts,
    MemberFacts,
    NameServerFacts,
    SendAnswer,
    Subscription,
)
from trocket.operations.doctor.findings import Finding, Severity
from trocket.operations.doctor.health import loop_lag_of
from trocket.operations.doctor.kinds import Kind
from trocket.operations.doctor.server_checks import address_kind, clock_reading, health_address
from trocket.remoting.bodies import TopicConfig
from trocket.remoting.response_codes import ResponseCode

A, A_SLAVE, B = BrokerKey("broker-a", 0), BrokerKey("broker-a", 1), BrokerKey("broker-b", 0)
ADDRESS = {A: "10.0.0.1:10911", A_SLAVE: "10.0.0.2:10911", B: "10.0.0.3:10911"}
NAME_SERVER = NameServerFacts(
    "10.0.0.9:9876", brokers=ADDRESS, clusters={"broker-a": "C", "broker-b": "C"}
)


def topic(**changes: Any) -> TopicConfig:
    return TopicConfig(**{"read_queue_nums": 4, "write_queue_nums": 4, "perm": 6, **changes})


def broker(key: BrokerKey, **changes: Any) -> BrokerFacts:
    config = {"brokerName": key.name, "brokerId": str(key.broker_id), "brokerPermission": "6"}
    runtime = {
        "commitLogDiskRatio": "0.5",
        "consumeQueueDiskRatio": "0.5",
        "commitLogMaxOffset": "1000000000",
        "brokerVersionDesc": "V5_5_0",
        "sendThreadPoolQueueHeadWaitTimeMills": "0",
        "dispatchBehindBytes": "0",
    }
    good = BrokerFacts(
        key,
        "C",
        ADDRESS[key],
        config=config,
        runtime=runtime,
        clock=ClockReading(-900, 900),
        topics={"T": topic(), "C": topic(perm=7), "TBW102": topic(read_queue_nums=1)},
        groups=frozenset({"G"}),
        send=TAKEN,
        not_ready=(),
        loop_lag_s=0.002,
    )
    for name in ("config", "runtime", "topics"):
        if name in changes:
            changes[name] = {**getattr(good, name), **changes[name]}
    return replace(good, **changes)


def facts(*brokers: BrokerFacts, **changes: Any) -> Facts:
    """A good cluster in which some brokers are others."""
    by_key = {each.key: each for each in (broker(A), broker(A_SLAVE), broker(B), *brokers)}
    member = MemberFacts("c@1", "JAVA", "V5_5_0", frozenset({Subscription("T", "*", "TAG")}))
    group = GroupFacts("G", (member, replace(member, client_id="c@2")))
    return replace(Facts((NAME_SERVER,), tuple(by_key.values()), (group,)), **changes)


def results(given: Facts) -> dict[str, Result]:
    return {each.check: each for each in judge(given)}


def only(given: Facts, check: str) -> Finding:
    """The only finding; the other checks are content."""
    found = results(given)
    bad = {name for name, each in found.items() if each.severity > Severity.OK}
    assert bad == {check}, found
    (finding,) = found[check].findings
    assert finding.advice
    return finding


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("taken 5, left 20000, failed 0", "did 5 of 20,005 sends; pure Python did the others"),
        ("taken 500, left 2, failed 3", "failed 3 times since its start, at sends"),
    ],
)
def test_the_extension_fails_or_is_not_used(text: str, said: str) -> None:
    counts = PathCounts()
    counts.taken, counts.left, counts.failed = (int(each.split()[1]) for each in text.split(","))
    assert counts.is_troubled
    assert counts.text() == text
    troubled = broker(A, runtime={f"{TROUBLE_KEY}sends": text})
    finding = only(facts(troubled), "C extension")
    assert finding.severity is Severity.WARNING
    assert said in finding.text


def test_a_path_is_judged_after_some_work() -> None:
    counts = PathCounts()
    counts.left = 9_999
    assert not counts.is_troubled
    counts.left, counts.taken = 20_000, 300
    assert not counts.is_troubled
    counts.taken = 0
    assert counts.is_troubled
    counts.is_judged = False
    assert not counts.is_troubled


def test_a_good_cluster_has_nothing() -> None:
    assert [each.severity for each in judge(facts())] == [Severity.OK] * len(CHECKS)
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_without_a_name_server_there_is_nothing_else_to_say() -> None:
    found = results(Facts((NameServerFacts("10.0.0.9:9876", "refused"),)))
    assert [(name, each.severity) for name, each in found.items()] == [
        ("name servers", Severity.PROBLEM)
    ]


def test_where_no_name_server_answers_there_is_one_finding() -> None:
    away = [NameServerFacts(f"10.0.0.{n}:9876", f"10.0.0.{n}:9876: refused") for n in (7, 8)]
    (result,) = results(Facts(tuple(away))).values()
    (finding,) = result.findings
    assert finding.text == "no name server answers: 10.0.0.7:9876: refused; 10.0.0.8:9876: refused"


def test_one_of_several_name_servers_is_away() -> None:
    away = NameServerFacts("10.0.0.8:9876", "refused")
    finding = only(facts(name_servers=(NAME_SERVER, away)), "name servers")
    assert finding.severity is Severity.WARNING
    assert "10.0.0.8:9876" in finding.text


def test_a_name_server_tells_of_two_brokers_with_one_name() -> None:
    warned = replace(NAME_SERVER, warning="broker-a 0 is registered from 10.0.0.1 and 10.0.0.7")
    finding = only(facts(name_servers=(warned,)), "name servers")
    assert finding.severity is Severity.PROBLEM
    assert "10.0.0.7" in finding.text


def test_name_servers_that_do_not_agree() -> None:
    other = replace(NAME_SERVER, address="10.0.0.8:9876", brokers={**ADDRESS, B: "10.0.0.7:1"})
    finding = only(facts(name_servers=(NAME_SERVER, other)), "name servers")
    assert "10.0.0.7:1" in finding.text
    assert "broker-b" in finding.text
    del_b = {key: address for key, address in ADDRESS.items() if key != B}
    other = replace(other, brokers=del_b)
    assert "unknown" in only(facts(name_servers=(NAME_SERVER, other)), "name servers").text


def test_no_broker_and_no_master() -> None:
    found = results(facts(brokers=(), groups=()))
    assert "no broker is registered" in found["brokers"].findings[0].text
    finding = only(facts(brokers=(broker(A_SLAVE), broker(B))), "brokers")
    assert "broker-a has no master" in finding.text


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1:1", "loopback"), ("[::1]:1", "loopback"), ("localhost:1", "loopback"),
        ("0.0.0.0:1", "any"), ("172.17.0.2:1", "container"), ("169.254.1.1:1", "link-local"),
        ("10.0.0.1:1", ""), ("broker.example.org:1", ""), ("", ""), ("[fe80::1]:1", "link-local"),
    ],
)  # fmt: skip
def test_kinds_of_addresses(address: str, kind: str) -> None:
    assert address_kind(address) == kind


def test_a_loopback_address_is_wrong_unless_the_name_server_has_one() -> None:
    local = broker(A, address="127.0.0.1:10911")
    finding = only(facts(local), "addresses")
    assert "127.0.0.1:10911" in finding.text
    assert "brokerIP1" in finding.advice
    here = replace(NAME_SERVER, address="127.0.0.1:9876")
    assert results(facts(local, name_servers=(here,)))["addresses"].severity is Severity.OK


@pytest.mark.parametrize(
    ("address", "error", "advice"),
    [
        ("172.17.0.2:10911", "timed out", "of the container"),
        ("10.0.0.1:10911", "refused", "If it is stopped, start it"),
        ("0.0.0.0:10911", "", "brokerIP1"),
    ],
)
def test_an_address_that_does_not_answer(address: str, error: str, advice: str) -> None:
    finding = only(facts(broker(A, address=address, error=error)), "addresses")
    assert finding.severity is Severity.PROBLEM
    assert address in finding.text
    assert error in finding.text
    assert advice in finding.advice


def test_another_broker_answers() -> None:
    finding = only(facts(broker(B, config={"brokerName": "broker-x"})), "addresses")
    assert "another broker: broker-x" in finding.text
    assert only(facts(broker(B, config={"brokerId": "1"})), "addresses")


def test_requests_without_an_answer() -> None:
    gaps = {"GET_BROKER_CONFIG": "the connection was lost"}
    assert "GET_BROKER_CONFIG" in only(facts(broker(A, gaps=gaps)), "answers").text


@pytest.mark.parametrize(
    ("reading", "severity", "text"),
    [
        ((3_000, 4_000), Severity.WARNING, "3 s or more ahead of"),
        ((-5_500, -4_500), Severity.WARNING, "4 s or more behind"),
        ((60_000, 61_000), Severity.PROBLEM, "60 s or more ahead"),
    ],
)
def test_clocks(reading: tuple[int, int], severity: Severity, text: str) -> None:
    finding = only(facts(broker(A, clock=ClockReading(*reading))), "clocks")
    assert finding.severity is severity
    assert text in finding.text


def test_a_clock_is_read_from_the_start_and_the_running_time() -> None:
    runtime = {"bootTimestamp": "1000000", "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"}
    now_ms = 1_000_000 + 1000 * (86_400 + 2 * 3_600 + 3 * 60 + 4)
    assert clock_reading(runtime, now_ms, now_ms + 50) == (-50, 999)
    assert clock_reading(runtime, now_ms - 5_000, now_ms - 4_900) == (4_900, 5_999)
    for bad in ({}, {"bootTimestamp": "1"}, {**runtime, "runtime": "[ x ]"},
                {**runtime, "bootTimestamp": "never"}):  # fmt: skip
        assert clock_reading(bad, 0, 0) is None


def test_versions() -> None:
    finding = only(facts(broker(B, runtime={"brokerVersionDesc": "V4_9_7"})), "versions")
    assert "V4_9_7: broker-b" in finding.text
    members = (MemberFacts("c@1", "JAVA", "V5_5_0"), MemberFacts("c@2", "GO", "V4_9_7"))
    finding = only(facts(groups=(GroupFacts("G", members),)), "versions")
    assert "GO V4: c@2; JAVA V5: c@1" in finding.text


def test_slaves() -> None:
    behind = broker(A_SLAVE, runtime={"commitLogMaxOffset": "1000"})
    assert "1,000 MB behind" in only(facts(behind), "slaves").text
    alone = broker(B, config={"brokerRole": "SYNC_MASTER"})
    assert "has no slave" in only(facts(alone), "slaves").text
    unknown = broker(A_SLAVE, runtime={"commitLogMaxOffset": "?"})
    assert results(facts(unknown))["slaves"].severity is Severity.OK


@pytest.mark.parametrize(
    ("ratio", "severity", "text"),
    [
        ("0.76", Severity.WARNING, "expired files"),
        ("0.85", Severity.WARNING, "oldest messages"),
        ("0.9", Severity.PROBLEM, "sends are refused"),
    ],
)
def test_disks(ratio: str, severity: Severity, text: str) -> None:
    for name in ("commitLogDiskRatio", "consumeQueueDiskRatio"):
        finding = only(facts(broker(A_SLAVE, runtime={name: ratio})), "disks")
        assert finding.severity is severity
        assert text in finding.text
    higher = broker(
        A, runtime={"commitLogDiskRatio": "0.76"}, config={"diskMaxUsedSpaceRatio": "80"}
    )
    assert results(facts(higher))["disks"].severity is Severity.OK
    unknown = broker(A, runtime={"commitLogDiskRatio": "-1"})
    assert results(facts(unknown))["disks"].severity is Severity.OK


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"config": {"brokerPermission": "4"}}, "refuses all sends"),
        ({"config": {"brokerPermission": "2"}}, "refuses all pulls"),
        ({"send": SendAnswer(1, "an error")}, "code 1, an error"),
        ({"runtime": {"sendThreadPoolQueueHeadWaitTimeMills": "450"}}, "wait for 450 ms"),
        ({"runtime": {"dispatchBehindBytes": "90000000"}}, "90 MB"),
    ],
)
def test_sends(changes: dict[str, Any], text: str) -> None:
    assert text in only(facts(broker(A, **changes)), "sends").text


NOT_AVAILABLE = SendAnswer(ResponseCode.SERVICE_NOT_AVAILABLE, "[CL: 0.26]")


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        (
            {"runtime": {"consumeQueueDiskRatio": "0.93"}},
            Kind.SEND_REFUSED_DISK,
            "the disk with its consume queues is 93 % full, above the limit of 90 %",
        ),
        ({"config": {"brokerRole": "SLAVE"}}, Kind.SEND_REFUSED_SLAVE, "brokerRole=SLAVE"),
        ({}, Kind.SEND_REFUSED_STORE, "no disk is above its limit and it is no slave"),
    ],
)
def test_code_14_has_one_of_three_reasons(changes: dict[str, Any], kind: Kind, text: str) -> None:
    found = results(facts(broker(A, send=NOT_AVAILABLE, **changes)))["sends"]
    (finding,) = found.findings
    assert finding.kind is kind
    assert text in finding.text
    assert finding.about.broker == "broker-a"


def test_a_write_permission_that_a_name_server_took_away() -> None:
    finding = only(facts(write_perms_taken=frozenset({"broker-b"})), "sends")
    assert "trocket broker add-write-perm broker-b" in finding.advice


def test_numbers_that_are_none_are_not_judged() -> None:
    wrong = dict.fromkeys(("commitLogDiskRatio", "dispatchBehindBytes"), "Infinity")
    odd = broker(A, runtime=wrong, config={"brokerPermission": "NaN"})
    assert {each.severity for each in judge(facts(odd))} == {Severity.OK}


@pytest.mark.parametrize(
    ("host", "address", "where"),
    [
        ("", "10.0.0.1:10911", "10.0.0.1:5557"),
        ("0.0.0.0", "10.0.0.1:10911", "10.0.0.1:5557"),
        ("::", "[fd00::1]:10911", "[fd00::1]:5557"),
        ("10.0.0.7", "10.0.0.1:10911", "10.0.0.7:5557"),
        ("127.0.0.1", "127.0.0.1:10911", "127.0.0.1:5557"),
        ("127.0.0.1", "10.0.0.1:10911", ""),
    ],
)
def test_health_is_not_asked_of_another_machine(host: str, address: str, where: str) -> None:
    config = {
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": "5557",
        "metricsPromExporterHost": host,
    }
    assert health_address(config, address) == where
    for key, value in (
        ("metricsPromExporterPort", "0"),
        ("metricsPromExporterPort", "9" * 5000),
        ("metricsExporterType", "DISABLE"),
    ):
        assert health_address({**config, key: value}, address) == ""


def test_health() -> None:
    assert "is not ready: x" in only(facts(broker(A, not_ready=("x",))), "health").text
    assert "wait 0.5 s" in only(facts(broker(A, loop_lag_s=0.5)), "health").text


LAGS = """\
trocket_event_loop_lag_seconds_bucket{cluster="C",le="0.001",node_id="b"} 90.0
trocket_event_loop_lag_seconds_bucket{cluster="C",le="0.5",node_id="b"} 99.0
trocket_event_loop_lag_seconds_bucket{cluster="C",le="+Inf",node_id="b"} 100.0
"""


def test_the_lag_of_the_event_loop_is_a_quantile() -> None:
    assert loop_lag_of(LAGS) == 0.5
    assert loop_lag_of(LAGS.replace(" 99.0", " 98.0")) == float("inf")
    assert loop_lag_of("") is None
    assert loop_lag_of(LAGS.replace(" 100.0", " many")) is None


@pytest.mark.parametrize(
    ("changes", "severity", "text"),
    [
        ({"write_queue_nums": 0}, Severity.WARNING, "no queue can be written"),
        ({"read_queue_nums": 2}, Severity.PROBLEM, "more write queues than read queues"),
        ({"perm": 4}, Severity.WARNING, "sends are forbidden"),
        ({"perm": 2}, Severity.WARNING, "consuming is forbidden"),
    ],
)
def test_topics(changes: dict[str, Any], severity: Severity, text: str) -> None:
    finding = only(facts(broker(A, topics={"T": topic(**changes)})), "topics")
    assert finding.severity is severity
    assert text in finding.text
    assert finding.text.endswith(": T")


def test_topics_that_a_broker_of_the_cluster_does_not_have() -> None:
    many = {f"Only{number}": topic() for number in range(8)}
    own = {"broker-a": topic(), "%RETRY%G": topic(), "C_REPLY_TOPIC": topic(), "rmq_sys_x": topic()}
    finding = only(facts(broker(A, topics={**many, **own})), "topics")
    assert "broker-b does not have: Only0, Only1, Only2, Only3, Only4 and 3 more" in finding.text
    others = broker(B, cluster="D", topics={"D": topic()})
    elsewhere = facts(broker(A, topics=many), others)
    assert results(elsewhere)["topics"].severity is Severity.OK


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ("broker-a:9", "there are 4"),
        ("broker-x:4", "does not have the topic"),
        ("broker-a", ""),
        ("broker-a:" + "9" * 5000, ""),
    ],
)
def test_orders_of_topics(order: str, text: str) -> None:
    finding = only(facts(ordered={"T": f"broker-b:4;{order}"}), "topics")
    assert finding.severity is Severity.PROBLEM
    assert text in finding.text
    good = facts(ordered={"T": "broker-a:4;broker-b:4"})
    assert results(good)["topics"].severity is Severity.OK


def test_members_that_want_different_things() -> None:
    def member(number: int, *wanted: Subscription) -> MemberFacts:
        return MemberFacts(f"c@{number}", "JAVA", "V5_5_0", frozenset(wanted))

    all_of_t, some_of_t = Subscription("T", "*", "TAG"), Subscription("T", "A", "TAG")
    members = (member(1, all_of_t), member(2, some_of_t))
    finding = only(facts(groups=(GroupFacts("G", members),)), "subscriptions")
    assert finding.severity is Severity.PROBLEM
    assert "TAG '*': c@1; TAG 'A': c@2" in finding.text
    members = (member(1, all_of_t), member(2, all_of_t, Subscription("U", "*", "TAG")))
    finding = only(facts(groups=(GroupFacts("G", members),)), "subscriptions")
    assert "the topic U" in finding.text
    assert "nothing: c@1" in finding.text
    silent = MemberFacts("c@3", "JAVA", "V5_5_0")
    good = facts(groups=(GroupFacts("G", (member(1, all_of_t), silent)),))
    assert results(good)["subscriptions"].severity is Severity.OK


def test_groups_without_consumers() -> None:
    finding = only(facts(groups=(GroupFacts("G", lag={"T": 1200, "U": 0}),)), "consumers")
    assert "1,200 messages wait (T 1,200)" in finding.text
    assert (
        results(facts(groups=(GroupFacts("G", lag={"T": 0}),)))["consumers"].severity is Severity.OK
    )
    unknown = facts(groups=(GroupFacts("G", error="lost"),))
    assert results(unknown)["consumers"].severity is Severity.SKIPPED
