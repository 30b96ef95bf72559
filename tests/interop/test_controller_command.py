"""`trocket controller` with a set of Apache's brokers under Apache's controller."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trocket.interop.controller_mode import BROKER_NAME, ControlledSet, Mix
from trocket.interop.maven import missing_tool

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@contextmanager
def started(folder: Path) -> Iterator[ControlledSet]:
    """A running set of two."""
    reason = missing_tool()
    if reason is not None:
        pytest.fail(reason)
    with ControlledSet(Mix(), folder) as made:
        made.start()
        made.wait_in_sync(2)
        yield made


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledSet]:
    """A set of the module, which stays whole: the tests run in any order."""
    with started(tmp_path_factory.mktemp("set")) as made:
        yield made


@pytest.fixture
def lost_brokers(tmp_path: Path) -> Iterator[ControlledSet]:
    """A set for one test, which may lose its brokers."""
    with started(tmp_path) as made:
        yield made


def command(
    brokers: ControlledSet, *words: str, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """`trocket controller` with some words, which ends with a status."""
    arguments = [*words, "--url", brokers.namesrv_address]
    done = subprocess.run(
        [sys.executable, "-m", "trocket.cli.main", "controller", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_the_state_of_a_set(brokers: ControlledSet) -> None:
    controller = brokers.controller_addresses[0]
    state = brokers.wait_in_sync(2)
    lines = command(brokers, "status").stdout.splitlines()
    assert lines[0].split("\t") == [controller, "yes", "group1", controller]
    roles = {each: "master" if each == state.master_id else "slave" for each in (1, 2)}
    assert [line.split("\t") for line in lines[1:]] == [
        [
            BROKER_NAME, str(state.master_epoch), str(each), state.addresses[each], roles[each],
            "yes", "yes",
        ]
        for each in (1, 2)
    ]  # fmt: skip
    shown = json.loads(
        command(brokers, "status", BROKER_NAME, "--controllers", controller, "--json").stdout
    )
    assert [each["isLeader"] for each in shown["controllers"]] == [True]
    assert shown["sets"][BROKER_NAME]["masterBrokerId"] == state.master_id
    done = command(brokers, "status", "nosuch", "--controllers", controller)
    assert "the controllers do not know nosuch" in done.stderr
    lines = command(brokers, "epochs", BROKER_NAME).stdout.splitlines()
    # Apache's brokers keep the first epoch, also where nothing was written in it.
    assert {(state.addresses[each], roles[each], "1", "0") for each in (1, 2)} <= {
        tuple(line.split("\t")[:4]) for line in lines
    }


def test_another_master_is_elected_by_hand(brokers: ControlledSet) -> None:
    before = brokers.wait_in_sync(2)
    chosen = 1 if before.master_id == 2 else 2
    done = command(brokers, "elect", BROKER_NAME, str(chosen), status=2)
    assert "Add --yes to confirm" in done.stderr
    done = command(brokers, "elect", BROKER_NAME, str(chosen), "--yes")
    epoch, address = before.master_epoch + 1, before.addresses[chosen]
    assert done.stdout.split() == [BROKER_NAME, str(epoch), str(chosen), address, "yes"]
    done = command(brokers, "elect", BROKER_NAME, "9", "--yes", "--json", status=1)
    assert "error" in json.loads(done.stderr)
    brokers.wait_in_sync(2)


def test_settings_and_members_of_controllers(brokers: ControlledSet) -> None:
    changed = {"scanNotActiveBrokerInterval": "700"}
    words = ("config", "--set", "scanNotActiveBrokerInterval=700", "--yes", "--json")
    assert json.loads(command(brokers, *words).stdout) == {"changed": changed}
    (settings,) = json.loads(command(brokers, "config", "--json").stdout).values()
    assert changed.items() <= settings.items()
    command(brokers, "clean", BROKER_NAME, "1", "--yes", status=1)  # it is alive
    done = command(brokers, "status", "--controllers", "here", status=2)
    assert "--controllers: 'here' is not host:port" in done.stderr


def findings(brokers: ControlledSet, status: int, *, is_fine: bool = False) -> list[str]:
    """What the doctor finds about failover."""
    done = subprocess.run(
        [sys.executable, "-m", "trocket.cli.main", "doctor", brokers.namesrv_address, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    (check,) = (each for each in json.loads(done.stdout)["checks"] if each["check"] == "failover")
    assert (check["result"] == "ok") == is_fine
    return [each["text"] for each in check["findings"]]


def test_the_doctor_sees_what_a_set_lacks(lost_brokers: ControlledSet) -> None:
    brokers = lost_brokers
    assert len(findings(brokers, 0, is_fine=True)) == 1
    slave = brokers.slaves()[0]
    slave.kill()
    brokers.wait_state(lambda state: len(state.in_sync) == 1, "a set of one")
    (text,) = findings(brokers, 0)
    assert text.startswith(f"only {brokers.master().address} of the 2 brokers of {BROKER_NAME}")
    (controller,) = brokers.controllers
    controller.kill()
    (text,) = findings(brokers, 1)
    assert text.startswith(f"no controller of {BROKER_NAME} leads")
