"""Accounts of a cluster under test: the same for both generations of access control."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading

import pytest

from trocket.interop.accounts import (
    SUPER,
    Account,
    Accounts,
    Generation,
    Grant,
    acl_2_keys,
    generations_of,
    open_with_accounts,
    plain_acl_text,
    policies_of,
)
from trocket.interop.mqadmin_accounts import COMMANDS, write_keys
from trocket.interop.process import PeerError
from trocket.interop.scenarios.account_jobs import jobs, scenarios_of
from trocket.interop.scenarios.table import CPP
from trocket.interop.wire import Keys, WireClient
from trocket.remoting.codec import decode_frame
from trocket.remoting.signature import SIGNATURE, sign

KEYS = Keys("a-publisher", "its-secret")
PUBLISHER = Account(
    KEYS,
    (
        Grant("Topic:orders", ("Pub",)),
        Grant("Topic:*", ("Pub", "Sub"), is_default=True),
        Grant("Group:readers", ("Sub",), is_denied=True, sources=("192.0.2.1",)),
    ),
)


def test_an_account_of_acl_1_is_a_part_of_plain_acl_yml():
    lines = plain_acl_text([PUBLISHER]).splitlines()
    assert lines[lines.index("- accessKey: a-publisher") :] == [
        "- accessKey: a-publisher",
        "  secretKey: its-secret",
        "  whiteRemoteAddress: ",
        "  admin: false",
        "  defaultTopicPerm: PUB|SUB",
        "  topicPerms:",
        "  - orders=PUB",
        "  defaultGroupPerm: DENY",
        "  groupPerms:",
        "  - readers=DENY",
    ]
    assert "  admin: true" in lines[: lines.index("- accessKey: a-publisher")]


def test_the_rights_of_acl_2_are_two_kinds_of_policies():
    custom, default = policies_of(PUBLISHER)
    assert (custom["policyType"], default["policyType"]) == ("Custom", "Default")
    assert custom["entries"] == [
        {"resource": "Topic:orders", "actions": ["Pub"], "sourceIps": [], "decision": "Allow"},
        {
            "resource": "Group:readers",
            "actions": ["Sub"],
            "sourceIps": ["192.0.2.1"],
            "decision": "Deny",
        },
    ]
    assert [entry["resource"] for entry in default["entries"]] == ["Topic:*"]


@pytest.mark.parametrize(
    ("peer", "generations"),
    [
        ("trocket", (Generation.ACL_1, Generation.ACL_2)),
        ("apache-4.2.0", ()),
        ("apache-4.9.7", (Generation.ACL_1,)),
        ("apache-5.3.0", (Generation.ACL_1, Generation.ACL_2)),
        ("apache-5.5.0", (Generation.ACL_2,)),
        ("rocketmq://127.0.0.1:9876", ()),
    ],
)
def test_a_broker_has_the_generations_of_its_version(peer, generations):
    assert generations_of(peer) == generations


def test_a_generation_that_a_broker_lacks_is_refused(tmp_path):
    with pytest.raises(PeerError, match=r"apache-5\.5\.0 has no ACL 1\.0"):
        open_with_accounts("apache-5.5.0", tmp_path, Accounts(Generation.ACL_1, ()), {})


def test_the_first_account_is_the_one_that_brokers_sign_with():
    keys = acl_2_keys(SUPER.keys)
    first = json.loads(str(keys["initAuthenticationUser"]))
    inner = json.loads(str(keys["innerClientAuthenticationCredentials"]))
    assert first["username"] == inner["accessKey"] == SUPER.keys.access_key
    assert first["password"] == inner["secretKey"] == SUPER.keys.secret_key


def test_secrets_are_not_in_the_text_of_an_account():
    assert "its-secret" not in repr(PUBLISHER)


def test_the_wire_client_signs_as_the_official_ones():
    with socket.create_server(("127.0.0.1", 0)) as server:
        received: list[bytes] = []

        def take() -> None:
            connection, _ = server.accept()
            with connection:
                received.append(connection.recv(4096))

        thread = threading.Thread(target=take)
        thread.start()
        with WireClient(f"127.0.0.1:{server.getsockname()[1]}", keys=KEYS) as wire:
            wire.send_request(310, {"b": "orders", "a": "producers", "m": False}, b"body")
        thread.join()
    fields = decode_frame(received[0]).ext_fields
    content = b"a-publisherproducersordersfalsebody"
    digest = hmac.new(b"its-secret", content, hashlib.sha1).digest()
    assert fields[SIGNATURE] == base64.b64encode(digest).decode()
    again = {name: value for name, value in fields.items() if name != SIGNATURE}
    sign(again, b"body", KEYS.access_key, KEYS.secret_key)
    assert again == fields


def test_every_generation_of_a_broker_has_a_job():
    found = jobs(["trocket", "apache-5.5.0", "apache-4.9.7"])
    assert [job.name for job in found] == [
        "accounts on trocket, ACL 1.0",
        "accounts on trocket, ACL 2.0",
        "accounts on apache-5.5.0, ACL 2.0",
        "accounts on apache-4.9.7, ACL 1.0",
    ]
    names = [cell.name for job in found for cell in job.owed]
    assert len(names) == len(set(names))
    assert not any(cell.client == CPP for job in found for cell in job.owed)


def test_a_fast_run_has_one_client():
    (job,) = jobs(["apache-5.5.0"], is_fast=True)
    assert {cell.client for cell in job.owed} == {"python-asyncio"}


@pytest.mark.parametrize("generation", Generation)
def test_what_is_played_has_each_way_to_send_and_to_consume(generation):
    names = {scenario.name for scenario in scenarios_of(generation)}
    assert {"send_batch", "send_oneway", "transaction", "later_level", "trace"} <= names
    assert {"push_concurrent", "push_orderly", "pull_queue", "query", "refused"} <= names


@pytest.mark.parametrize("generation", Generation)
def test_no_two_commands_of_mqadmin_have_one_name(generation):
    names = [command.feature for command in COMMANDS[generation]]
    assert len(names) == len(set(names))


def test_mqadmin_gets_its_keys_from_a_file(tmp_path):
    write_keys(tmp_path, KEYS)
    path = tmp_path / "home" / "conf" / "tools.yml"
    assert path.read_text() == "accessKey: a-publisher\nsecretKey: its-secret\n"
    write_keys(tmp_path, None)
    assert not path.exists()
