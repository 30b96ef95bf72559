"""What `trocket doctor` finds in a broker set under controllers, and that a whole one is fine."""

from __future__ import annotations

import msgspec

from trocket.operations.doctor.facts import EpochFacts, Facts, ReplicaFacts, SetFacts
from trocket.operations.doctor.findings import Severity
from trocket.operations.doctor.kinds import Kind
from trocket.operations.doctor.set_checks import sets

FIRST, SECOND = "10.0.0.1:10911", "10.0.0.2:10911"
WHOLE = SetFacts(
    "broker-a",
    ("10.0.0.7:9878",),
    "10.0.0.7:9878",
    {},
    1,
    (ReplicaFacts(1, FIRST, True, True), ReplicaFacts(2, SECOND, True, True)),
    {FIRST: EpochFacts(3, 500, 900), SECOND: EpochFacts(3, 500, 900)},
)


def found_in(**changes: object) -> list[tuple[Kind, Severity, str]]:
    facts = Facts((), sets=(msgspec.structs.replace(WHOLE, **changes),))
    return [(each.kind, each.severity, each.text) for each in sets(facts)]


def test_a_whole_set_is_fine() -> None:
    assert found_in() == []
    assert list(sets(Facts(()))) == []


def test_without_a_leader_no_other_master_is_elected() -> None:
    nothing = {"announced": "", "master_id": None, "replicas": ()}
    ((kind, severity, text),) = found_in(**nothing, errors={"10.0.0.7:9878": "refused"})
    assert (kind, severity) == (Kind.CONTROLLERS_FAIL, Severity.PROBLEM)
    assert text.endswith("(10.0.0.7:9878): 10.0.0.7:9878: refused")
    ((kind, _, _),) = found_in(**nothing)
    assert kind is Kind.CONTROLLERS_WITHOUT_LEADER


def test_one_member_in_sync_has_no_one_to_follow_it() -> None:
    replicas = (WHOLE.replicas[0], ReplicaFacts(2, SECOND, True, False))
    ((kind, severity, text),) = found_in(replicas=replicas)
    assert (kind, severity) == (Kind.SET_OF_ONE, Severity.WARNING)
    assert text.startswith("only 10.0.0.1:10911 of the 2 brokers of broker-a is in sync")
    dead = (WHOLE.replicas[0], ReplicaFacts(2, SECOND, False, True))
    assert [kind for kind, _, _ in found_in(replicas=dead)] == [Kind.SET_OF_ONE]


def test_only_members_in_sync_may_follow_a_lost_master() -> None:
    replicas = (ReplicaFacts(1, FIRST, False, True), ReplicaFacts(2, SECOND, True, False))
    for master_id in (1, None):
        ((kind, severity, text),) = found_in(replicas=replicas, master_id=master_id)
        assert (kind, severity) == (Kind.SET_WITHOUT_MASTER, Severity.PROBLEM)
        assert text.endswith("1 (10.0.0.1:10911)")


def test_loopback_addresses_are_wrong_among_machines_and_right_on_one() -> None:
    here = (ReplicaFacts(1, "127.0.0.1:1", True, True), ReplicaFacts(2, "127.0.0.1:2", True, True))
    assert found_in(replicas=here, announced="127.0.0.1:9", epochs={}) == []
    mixed = (here[0], WHOLE.replicas[1])
    ((kind, _, text),) = found_in(replicas=mixed, epochs={})
    assert (kind, "127.0.0.1:1" in text) == (Kind.MEMBER_LOOPBACK, True)
    ((kind, severity, _),) = found_in(announced="127.0.0.1:9878")
    assert (kind, severity) == (Kind.CONTROLLER_LOOPBACK, Severity.PROBLEM)


def test_a_member_of_an_earlier_epoch_is_behind_once_the_master_has_written() -> None:
    behind = {FIRST: EpochFacts(3, 500, 900), SECOND: EpochFacts(2, 100, 500)}
    ((kind, severity, text),) = found_in(epochs=behind)
    assert (kind, severity) == (Kind.EPOCH_BEHIND, Severity.WARNING)
    assert text.startswith("10.0.0.2:10911 of broker-a has the epoch 2")
    assert found_in(epochs={**behind, FIRST: EpochFacts(3, 900, 900)}) == []
    assert found_in(epochs={SECOND: behind[SECOND]}) == []
