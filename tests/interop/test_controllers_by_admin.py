"""Our `Admin` with three controllers of Apache's, which elect a leader, and one broker set."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from trocket.client import Admin, BrokersError, ConfigurationError, NotFoundError, ServerError
from trocket.interop.controller_mode import BROKER_NAME, ControlledSet, Mix
from trocket.interop.maven import missing_tool
from trocket.interop.wire import Outgoing, WireClient
from trocket.remoting.response_codes import ResponseCode

pytestmark = [pytest.mark.interop, pytest.mark.slow]

DEADLINE_S = 60.0
T = TypeVar("T")
Do = Callable[[Callable[[Admin], Awaitable[Any]]], Any]


@contextmanager
def started(folder: Path, controller_count: int) -> Iterator[ControlledSet]:
    """A running set of two."""
    reason = missing_tool()
    if reason is not None:
        pytest.fail(reason)
    with ControlledSet(Mix(), folder, controller_count=controller_count) as made:
        made.start()
        # Apache's brokers keep an epoch in which nothing was written, and refuse the next one.
        with WireClient(made.members[0].address) as client:
            client.create_topic("Orders", queue_count=1)
            client.send_all([Outgoing("Orders", 0, b"in the first epoch")])
        yield made


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledSet]:
    """A set under three controllers, which stays whole: the tests run in any order."""
    with started(tmp_path_factory.mktemp("set"), 3) as made:
        yield made


def runner(brokers: ControlledSet) -> Do:
    """Runs verbs with an `Admin` of a set."""

    def run(verb: Callable[[Admin], Awaitable[T]]) -> T:
        async def main() -> T:
            with anyio.fail_after(DEADLINE_S):
                async with Admin(brokers.namesrv_address) as admin:
                    return await verb(admin)

        return anyio.run(main, backend="trio")

    return run


@pytest.fixture
def do(brokers: ControlledSet) -> Do:
    brokers.wait_in_sync(2)
    return runner(brokers)


def test_the_brokers_name_their_controllers_and_those_their_leader(
    do: Do, brokers: ControlledSet
) -> None:
    async def verb(admin: Admin) -> None:
        assert await admin.controllers() == brokers.controller_addresses
        found = await admin.controller_metadata()
        assert set(found) == set(brokers.controller_addresses)
        (leader,) = (each.address for each in found.values() if each.is_leader)
        assert {each.leader_address for each in found.values()} == {leader}
        assert {each.group for each in found.values()} == {"group1"}
        with pytest.raises(NotFoundError, match="nosuch"):
            await admin.controllers("nosuch")
        with pytest.raises(ConfigurationError):
            await admin.controller_metadata([])

    do(verb)


def test_the_leader_is_asked_wherever_it_is(do: Do, brokers: ControlledSet) -> None:
    async def verb(admin: Admin) -> None:
        for address in brokers.controller_addresses:
            (found,) = (await admin.in_sync_sets(controllers=[address])).values()
            assert [each.broker_id for each in found.in_sync_replicas] == [1, 2]
            assert found.master_address in [member.address for member in brokers.members]
            assert all(each.alive for each in found.in_sync_replicas)
        assert await admin.in_sync_sets(["nosuch"]) == {}

    do(verb)


def test_a_frozen_controller_costs_a_part_of_the_time(do: Do, brokers: ControlledSet) -> None:
    leader = brokers.leader()
    frozen = next(each for each in brokers.controllers if each is not leader)

    async def verb(admin: Admin) -> None:
        assert set(await admin.in_sync_sets()) == {BROKER_NAME}
        with pytest.raises(BrokersError) as error:
            await admin.controller_config()
        assert set(error.value.partial) == {*brokers.controller_addresses} - {frozen.address}

    frozen.freeze()
    try:
        do(verb)
    finally:
        frozen.thaw()


def test_settings_of_controllers(do: Do, brokers: ControlledSet) -> None:
    async def verb(admin: Admin) -> None:
        await admin.update_controller_config({"scanNotActiveBrokerInterval": "600"})
        found = await admin.controller_config()
        values = {each["scanNotActiveBrokerInterval"] for each in found.values()}
        assert (len(found), values) == (3, {"600"})
        with pytest.raises(BrokersError) as error:
            await admin.update_controller_config({"configStorePath": "/nowhere"})
        codes = {
            each.error.code for each in error.value.failures if isinstance(each.error, ServerError)
        }
        assert codes == {ResponseCode.NO_PERMISSION}

    do(verb)


def test_a_designated_master_is_elected(do: Do, brokers: ControlledSet) -> None:
    async def verb(admin: Admin) -> None:
        before = (await admin.in_sync_sets())[BROKER_NAME]
        chosen = 2 if before.master_broker_id == 1 else 1
        elected = await admin.elect_master(BROKER_NAME, chosen)
        assert (elected.controller_id, elected.is_new) == (chosen, True)
        assert elected.epoch > before.master_epoch
        again = await admin.elect_master(BROKER_NAME, chosen)
        assert (again.controller_id, again.is_new, again.epoch) == (chosen, False, elected.epoch)
        with pytest.raises(ServerError) as error:
            await admin.elect_master(BROKER_NAME, 9)
        assert error.value.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        with pytest.raises(ConfigurationError):
            await admin.elect_master(BROKER_NAME, 0)

    do(verb)
    brokers.wait_in_sync(2)


def test_the_epochs_of_brokers(do: Do, brokers: ControlledSet) -> None:
    async def verb(admin: Admin) -> None:
        epochs = await admin.set_epochs(BROKER_NAME)
        assert set(epochs) == {member.address for member in brokers.members}
        state = (await admin.in_sync_sets())[BROKER_NAME]
        master = await admin.broker_epochs(BROKER_NAME)
        assert (master.broker_name, master.broker_id) == (BROKER_NAME, 0)
        # Apache's brokers may refuse the next epoch (F7), so the list may lack the newest.
        assert master.epoch_list[-1].epoch <= state.master_epoch
        assert (await admin.broker_epochs(state.master_address)).epoch_list == master.epoch_list

    do(verb)


def test_a_broker_that_is_gone_is_forgotten_and_a_living_one_is_not(tmp_path: Path) -> None:
    with started(tmp_path, 1) as brokers:
        brokers.wait_in_sync(2)
        forget_a_slave(runner(brokers), brokers)


def forget_a_slave(do: Do, brokers: ControlledSet) -> None:
    async def refused(admin: Admin) -> None:
        with pytest.raises(ServerError) as error:
            await admin.clean_broker_data(BROKER_NAME, [1, 2])
        assert error.value.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA

    do(refused)
    state = brokers.wait_in_sync(2)
    lost = brokers.slaves()[0]
    (lost_id,) = (each for each, address in state.addresses.items() if address == lost.address)
    lost.kill()
    brokers.wait_state(lambda state: lost_id not in state.in_sync, "the slave out of the set")

    async def clean(admin: Admin) -> None:
        await admin.clean_broker_data(BROKER_NAME, [lost_id])
        found = (await admin.in_sync_sets())[BROKER_NAME]
        ids = [each.broker_id for each in (*found.in_sync_replicas, *found.not_in_sync_replicas)]
        assert ids == [found.master_broker_id]

    do(clean)
    brokers.wait_state(lambda state: set(state.addresses) != {1, 2}, "a set of one")
