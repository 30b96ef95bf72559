"""The catalogue of requests by accounts: names are unique, and every case is there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from trocket.interop.accounts import Generation
from trocket.interop.wire_differ.access_requests import ACCOUNTS, CASES, access_catalogue
from trocket.interop.wire_differ.differ import accounts_jobs
from trocket.interop.wire_differ.known_access_bugs import KNOWN_ACCESS_BUGS
from trocket.interop.wire_differ.normalise import Side
from trocket.interop.wire_differ.request import Request

DOCS = Path(__file__).resolve().parents[3] / "docs"
SIDE = Side("trocket", "127.0.0.1:1", "127.0.0.1:2")
CLIENT_CODES = (10, 310, 320, 11, 12, 34, 35, 36, 37, 38, 14, 15, 41, 42, 17, 200, 207, 215)
ADMIN_CODES = (202, 208, 25, 26, 28)


@pytest.mark.parametrize("generation", Generation)
def test_no_two_cells_have_one_name(generation):
    names = Counter(
        name for script in access_catalogue(generation) for name, _ in script.features()
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("generation", "own"),
    [(Generation.ACL_1, range(50, 55)), (Generation.ACL_2, range(3001, 3011))],
)
def test_every_code_is_asked_without_an_account_and_without_the_right(generation, own):
    for case in ("no account", "another secret", "no right at all", "a super user"):
        codes = {
            step.code.value
            for script in access_catalogue(generation)
            if script.name == case
            for step in script.steps
        }
        assert codes >= {*CLIENT_CODES, *ADMIN_CODES, *own}


@pytest.mark.parametrize("generation", Generation)
def test_every_case_signs_with_an_account_that_the_brokers_have(generation):
    known = {account.keys for account in ACCOUNTS[generation].table}
    for case in CASES:
        if case.only in (None, generation) and case.signer is not None:
            is_known = case.signer.keys in known
            assert is_known or case.words == "an unknown account" or "super" in case.words


def test_a_refusal_is_compared_in_full_and_a_pass_by_its_code():
    script = access_catalogue(Generation.ACL_2)[-1]
    step = script.steps[0]
    assert isinstance(step, Request)
    (normaliser,) = step.normalisers
    place = "org.apache.rocketmq.acl.plain.PlainPermissionManager.checkPerm(A.java:1)"
    text = "org.apache.rocketmq.acl.common.AclException: No acl config for x"
    answer = {"code": 1, "remark": f"{text}, {place}", "fields": {}, "body": None, "flag": 1}
    assert normaliser.apply(answer, SIDE) == {
        "code": 1,
        "remark": text,
        "fields": {},
        "body": None,
    }
    passed = {"code": 17, "remark": "no such topic", "fields": {"a": "b"}, "body": b"", "flag": 1}
    assert normaliser.apply(passed, SIDE) == {"code": 17, "remark": "<it passed>"}


def test_a_pair_has_a_job_for_each_generation_that_both_have():
    names = [job.name for job in accounts_jobs("trocket", ["apache-5.5.0", "apache-4.9.7"])]
    assert names == [
        "wire: trocket vs apache-5.5.0 with ACL 2.0",
        "wire: trocket vs apache-4.9.7 with ACL 1.0",
    ]


@pytest.mark.parametrize("generation", Generation)
def test_every_known_difference_is_about_a_request_of_the_catalogue(generation):
    names = {
        f"{step.code.value}: {step.name}"
        for script in access_catalogue(generation)
        for _, step in script.features()
    }
    idle = [
        pattern
        for bug in KNOWN_ACCESS_BUGS[generation]
        for pattern in bug.requests
        if not any(bug.names(name) for name in names)
    ]
    assert not idle


@pytest.mark.parametrize("generation", Generation)
def test_every_known_difference_names_a_row_of_the_documents(generation):
    text = (DOCS / "quirks.md").read_text()
    rows = [line.lstrip("| ") for line in text.splitlines() if line.startswith("|")]
    missing = {
        bug.row
        for bug in KNOWN_ACCESS_BUGS[generation]
        if not any(row.startswith(bug.row) for row in rows)
    }
    assert not missing
