"""A running controller: requests, heartbeats, elections, its state across a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode as Code

from .harness import CLUSTER, SET, FakeBroker, address_of, running, until


def recorded(golden: Path, code: int, answer: int = 0) -> dict[str, Any]:
    """An answer of Apache's controller."""
    for path in sorted((golden / "controller").glob("*_rpc.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            is_answer = record["dir"] == "response" and record["code"] == code
            if is_answer and record["header"]["code"] == answer:
                return record
    raise LookupError(code)


# The life of a set


async def test_the_first_broker_becomes_master_and_the_second_learns_it(
    golden: Path, autojump_clock: object
) -> None:
    async with running() as world:
        first, second = world.connect(1), world.connect(2)
        next_id = await first.ask(
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, clusterName=CLUSTER, brokerName=SET
        )
        assert next_id.ext_fields == recorded(golden, 1012)["header"]["extFields"]
        assert (await first.apply()).ext_fields == recorded(golden, 1013)["header"]["extFields"]
        registered = await first.register()
        assert registered.ext_fields == recorded(golden, 1003)["header"]["extFields"]
        assert json.loads(registered.body) == {"syncStateSet": [], "syncStateSetEpoch": 0}
        await first.beat()
        elected = await first.elect()
        theirs = recorded(golden, 1002)["header"]["extFields"]
        assert elected.ext_fields == {**theirs, "masterAddress": address_of(1)}
        await second.apply()
        registered = await second.register()
        assert registered.ext_fields == {**theirs, "masterAddress": address_of(1),
            "clusterName": CLUSTER, "brokerName": SET
        }  # fmt: skip
        await second.beat()
        assert await second.info() == ("1", "1", [1], 1)
        assert await first.alter([1, 2], 1) == 0
        assert await second.info() == ("1", "1", [1, 2], 2)


async def test_the_answer_to_an_election_can_be_read_as_a_group_and_has_quoted_keys(
    autojump_clock: object,
) -> None:
    async with running() as world:
        broker = world.connect(1)
        await broker.join()
        answer = await broker.elect()
        group = {"brokerAddrs": {"1": address_of(1)}, "brokerName": SET, "cluster": CLUSTER}
        assert json.loads(answer.body) == {
            "brokerMemberGroup": group, "syncStateSet": [1], **group,
        }  # fmt: skip
        again = await broker.elect()
        assert again.code == Code.CONTROLLER_MASTER_STILL_EXIST
        assert again.ext_fields == answer.ext_fields
        assert json.loads(again.body) == {"syncStateSet": [1]}


async def test_a_silent_master_is_replaced_and_all_living_members_are_notified(
    autojump_clock: object,
) -> None:
    async with running() as world:
        first, second = await world.pair()
        third = world.connect(3)
        await third.join()
        await second.beat(heartbeatTimeoutMills=30_000)
        await third.beat(heartbeatTimeoutMills=30_000)
        await first.beat(heartbeatTimeoutMills=2_000)
        await trio.sleep(1.9)
        assert (await second.info())[0] == "1"
        await trio.sleep(0.2)  # not at the next scan
        assert await second.info() == ("2", "2", [2], 3)
        await until(lambda: address_of(3) in world.notified)
        for broker_id in (2, 3):
            (command,) = world.notified[address_of(broker_id)]
            assert command.code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED
            assert command.is_oneway
            assert command.ext_fields == {
                "masterAddress": address_of(2),
                "masterBrokerId": "2",
                "masterEpoch": "2",
                "syncStateSetEpoch": "3",
            }
            assert json.loads(command.body) == {"syncStateSet": [2], "syncStateSetEpoch": 3}
        assert not world.notified[address_of(1)]


async def test_a_master_whose_port_refuses_is_replaced_at_once(autojump_clock: object) -> None:
    async with running() as world:
        first, second = await world.pair()
        world.refusing.add(address_of(1))
        await first.stream.aclose()
        await until(lambda: bool(world.notified[address_of(2)]))
        assert trio.current_time() < 1
        assert await second.info() == ("2", "2", [2], 3)


async def test_a_closed_connection_of_a_living_master_elects_no_one(autojump_clock: object) -> None:
    async with running() as world:
        first, second = await world.pair()
        await first.stream.aclose()
        await until(lambda: world.dialled == [address_of(1)])
        await trio.sleep(5)
        again = world.connect(1)
        await again.beat()
        await trio.sleep(8)
        assert await second.info() == ("1", "1", [1, 2], 2)


async def test_the_end_of_an_older_connection_says_nothing(autojump_clock: object) -> None:
    async with running() as world:
        first, second = await world.pair()
        newer = world.connect(1)
        await newer.beat()
        world.refusing.add(address_of(1))
        await first.stream.aclose()
        await trio.sleep(5)
        assert world.dialled == []
        assert await second.info() == ("1", "1", [1, 2], 2)


async def test_a_set_without_an_in_sync_broker_waits_for_one_of_them(
    autojump_clock: object,
) -> None:
    async with running() as world:
        first, second = await world.pair()
        third = world.connect(3)
        await third.join()
        await trio.sleep(20)
        await third.beat()
        await trio.sleep(6)
        assert await third.info() == (None, "1", [1, 2], 2)
        assert (await third.elect()).code == Code.CONTROLLER_ELECT_MASTER_FAILED
        await second.beat()
        await trio.sleep(0.1)  # the heartbeat is enough, without a scan
        assert await third.info() == ("2", "2", [2], 3)
        assert (await first.beat()).code == 0


async def test_an_unclean_election_is_done_where_it_is_allowed(autojump_clock: object) -> None:
    async with running() as world:
        await world.pair()
        third = world.connect(3)
        await third.join()
        await third.beat(heartbeatTimeoutMills=60_000)
        await trio.sleep(12)
        assert (await third.info())[0] is None
        change = await third.ask(
            RequestCode.UPDATE_CONTROLLER_CONFIG, b"enableElectUncleanMaster=true\n"
        )
        assert change.code == 0
        await trio.sleep(0.1)
        assert await third.info() == ("3", "2", [3], 3)


async def test_a_designated_broker_is_elected_or_no_one(autojump_clock: object) -> None:
    async with running() as world:
        first, second = await world.pair()
        third = world.connect(3)
        await third.join()
        refused = await third.elect(designateElect="true")
        assert refused.code == Code.CONTROLLER_ELECT_MASTER_FAILED
        assert await first.info() == ("1", "1", [1, 2], 2)
        assert (await second.elect(designateElect="true")).code == 0
        assert await first.info() == ("2", "2", [2], 3)
        deposed = await first.ask(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            b'{"syncStateSet":[1],"syncStateSetEpoch":2}',
            brokerName=SET, masterBrokerId=1, masterEpoch=1,
        )  # fmt: skip
        assert deposed.code == Code.CONTROLLER_INVALID_MASTER
        assert deposed.ext_fields == {"newSyncStateSetEpoch": "0"}
        assert deposed.body == b""


async def test_the_data_of_all_sets_is_answered(golden: Path, autojump_clock: object) -> None:
    async with running() as world:
        first, _ = await world.pair()
        answer = await first.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, b'["a","unknown"]')
        (info,) = json.loads(answer.body)["replicasInfoTable"].values()
        theirs = json.loads(recorded(golden, 1006)["body"])["replicasInfoTable"]["a"]
        assert info.keys() == theirs.keys()
        assert [each["brokerId"] for each in info["inSyncReplicas"]] == [1, 2]
        assert info["inSyncReplicas"][0].keys() == theirs["inSyncReplicas"][0].keys()
        assert all(each["alive"] for each in info["inSyncReplicas"])
        nothing = await first.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA)
        assert (nothing.code, nothing.remark) == (1, "not set any response code")


async def test_brokers_are_cleaned_once_they_are_dead(autojump_clock: object) -> None:
    async with running() as world:
        first, second = await world.pair()

        async def clean(**fields: object) -> int:
            said = {"clusterName": CLUSTER, "brokerName": SET, **fields}
            return (await first.ask(RequestCode.CLEAN_BROKER_DATA, **said)).code

        alive = Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        assert await clean(brokerControllerIdsToClean="2") == alive
        assert await clean() == alive
        assert await clean(brokerControllerIdsToClean="2;x") == alive
        assert await clean(brokerControllerIdsToClean="9" * 5_000) == alive
        assert await first.alter([1], 2) == 0
        await first.beat(heartbeatTimeoutMills=60_000)
        await trio.sleep(11)
        assert await clean(brokerControllerIdsToClean="2") == 0
        assert (await second.beat()).code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert await clean(isCleanLivingBroker="true") == 0
        answer = await first.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName=SET)
        assert answer.code == Code.CONTROLLER_BROKER_METADATA_NOT_EXIST


# The controller itself


async def test_it_names_itself_where_its_peer_reached_it(
    golden: Path, autojump_clock: object
) -> None:
    async with running() as world:
        answer = await world.connect(1).ask(RequestCode.CONTROLLER_GET_METADATA_INFO)
        theirs = recorded(golden, 1005)["header"]["extFields"]
        assert answer.ext_fields == {
            **theirs,
            "controllerLeaderAddress": "192.0.2.1:19876",
            "peers": "n0:192.0.2.1:19876;",
        }
    async with running(controller_d_leger_peers="n0-127.0.0.1:9878") as world:
        near, far = world.connect(1), world.connect(2, peer="192.0.2.7:50000")
        for broker, address in ((near, "127.0.0.1:9878"), (far, "192.0.2.1:19876")):
            answer = await broker.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)
            assert answer.ext_fields["controllerLeaderAddress"] == address


async def test_a_restart_elects_no_one_and_forgets_nothing(autojump_clock: object) -> None:
    disk = MemoryDisk()
    async with running(disk) as world:
        await world.pair()
    async with running(disk) as world:
        first, second = world.connect(1), world.connect(2)
        assert await first.info() == ("1", "1", [1, 2], 2)
        await trio.sleep(6)  # a scan
        assert await first.info() == ("1", "1", [1, 2], 2)
        assert (await second.register()).ext_fields["masterBrokerId"] == "1"
        await second.beat()
        await trio.sleep(4.1)  # the master had its time
        assert await second.info() == ("2", "2", [2], 3)


async def test_a_process_that_stood_still_elects_no_one(autojump_clock: object) -> None:
    async with running() as world:
        first, second = await world.pair()
        await first.beat(heartbeatTimeoutMills=2_000)
        await second.beat(heartbeatTimeoutMills=2_000)
        await world.stand_still(30)
        await first.beat(heartbeatTimeoutMills=2_000)  # it waited to be read
        await second.beat(heartbeatTimeoutMills=2_000)
        await trio.sleep(1)
        assert await second.info() == ("1", "1", [1, 2], 2)
        await second.beat(heartbeatTimeoutMills=2_000)
        await trio.sleep(1.5)
        assert (await second.info())[0] == "2"


async def test_a_process_that_is_always_late_elects_all_the_same(autojump_clock: object) -> None:
    async with running() as world:
        first, second = await world.pair()
        await first.beat(heartbeatTimeoutMills=2_000)
        await second.beat(heartbeatTimeoutMills=2_000)
        for _ in range(8):  # 6 s, three time-outs of the first; each sleep of 0.5 s is 0.25 late
            world.clock.jumped_s += 0.25
            await second.beat(heartbeatTimeoutMills=2_000)
            await trio.sleep(0.5)
        assert (await second.info())[0] == "2"


async def test_nothing_is_answered_or_notified_before_it_is_stored(autojump_clock: object) -> None:
    disk = MemoryDisk()
    async with running(disk) as world:
        first, second = await world.pair()
        full = OSError(28, "No space left on device")
        disk.fault = lambda operation, path: full if operation == "sync" else None
        failed = await first.ask(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            b'{"syncStateSet":[1],"syncStateSetEpoch":2}',
            brokerName=SET, masterBrokerId=1, masterEpoch=1,
        )  # fmt: skip
        assert failed.code == Code.SYSTEM_ERROR
        assert "cannot be saved" in (failed.remark or "")
        world.refusing.add(address_of(1))
        await first.stream.aclose()
        await trio.sleep(3)
        await second.beat()
        assert await second.info() == ("1", "1", [1, 2], 2)
        assert not world.notified
        disk.fault = None
        await trio.sleep(1.1)
        assert await second.info() == ("2", "2", [2], 3)
        assert world.notified[address_of(2)]


# Bad input


async def ask_all(broker: FakeBroker) -> dict[str, int]:
    """The codes of the answers to a request of each kind."""
    return {
        "info": (await broker.ask(1004, brokerName=broker.name)).code,
        "beat": (await broker.beat()).code,
        "register": (await broker.register()).code,
        "elect": (await broker.elect()).code,
        "alter": await broker.alter([1], 0),
        "clean": (await broker.ask(1011, clusterName=CLUSTER, brokerName=broker.name)).code,
    }


async def test_sets_and_ids_that_do_not_exist_are_refused(autojump_clock: object) -> None:
    async with running() as world:
        codes = await ask_all(world.connect(1, "nowhere"))
        unregistered = Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert codes == {
            "info": Code.CONTROLLER_BROKER_METADATA_NOT_EXIST,
            "beat": unregistered,
            "register": unregistered,
            "elect": unregistered,
            "alter": Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            "clean": Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
        }
        first, _ = await world.pair()
        stranger = world.connect(9)
        assert (await stranger.beat()).code == unregistered
        assert (await stranger.register()).code == unregistered
        assert (await stranger.elect()).code == unregistered
        assert await first.alter([1, 9], 2) == Code.CONTROLLER_INVALID_REPLICAS


FIELDS = {
    1001: {"brokerName": SET, "masterBrokerId": 1, "masterEpoch": 1},
    1002: {"clusterName": CLUSTER, "brokerName": SET, "brokerId": 1},
    1003: {"clusterName": CLUSTER, "brokerName": SET, "brokerId": 1, "brokerAddress": "h:1"},
    1004: {"brokerName": SET},
    1011: {"brokerName": SET},
    1012: {"clusterName": CLUSTER, "brokerName": SET},
    1013: {
        "clusterName": CLUSTER, "brokerName": SET, "appliedBrokerId": 3, "registerCheckCode": "x",
    },
    904: {"clusterName": CLUSTER, "brokerName": SET, "brokerId": 1, "brokerAddr": "h:1"},
}  # fmt: skip
BODY = b'{"syncStateSet":[1],"syncStateSetEpoch":2}'
REFUSALS = {int(code) for code in Code if code is not Code.SUCCESS} - {
    Code.CONTROLLER_MASTER_STILL_EXIST
}


@pytest.mark.parametrize("code", FIELDS)
async def test_each_field_is_needed(code: int, autojump_clock: object) -> None:
    async with running() as world:
        first, _ = await world.pair()
        before = await first.info()
        for name in FIELDS[code]:
            answer = await first.ask(code, BODY, **{**FIELDS[code], name: None})
            expected = 2005 if (code, name) == (904, "brokerId") else 1
            assert answer.code == expected, name
        assert await first.info() == before


@pytest.mark.parametrize("code", FIELDS)
@pytest.mark.parametrize("value", ["-5", str(2**31), str(2**63), "", "x", "9" * 9_000])
async def test_a_number_out_of_range_is_refused(
    code: int, value: str, autojump_clock: object
) -> None:
    async with running() as world:
        first, _ = await world.pair()
        before = await first.info()
        for name, good in FIELDS[code].items():
            if isinstance(good, int):
                answer = await first.ask(code, BODY, **{**FIELDS[code], name: value})
                assert answer.code in REFUSALS, name
        assert await first.info() == before


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", Code.SYSTEM_ERROR),
        (b"[1,2]", Code.SYSTEM_ERROR),
        (b'{"syncStateSet":[1,-2],"syncStateSetEpoch":2}', 2003),
        (b'{"syncStateSet":[1],"syncStateSetEpoch":2147483648}', Code.SYSTEM_ERROR),
        (b'{"syncStateSet":[1],"syncStateSetEpoch":1}', 2001),
        (b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}', 2013),
        (b'{"syncStateSet":[2],"syncStateSetEpoch":2}', 2013),
        (b'{"syncStateSet":[],"syncStateSetEpoch":2}', 2013),
        (b'{"syncStateSet":[1,99],"syncStateSetEpoch":2}', 2003),
        (b"{syncStateSet:[1],syncStateSetEpoch:2}", 0),
        (b'{"syncStateSet":["1"],"syncStateSetEpoch":"2"}', 0),
    ],
)
async def test_bodies_of_an_in_sync_set(body: bytes, code: int, autojump_clock: object) -> None:
    async with running() as world:
        first, _ = await world.pair()
        assert (await first.ask(1001, body, **FIELDS[1001])).code == code


async def test_a_million_ids_are_refused_in_a_short_answer(autojump_clock: object) -> None:
    async with running() as world:
        first, _ = await world.pair()
        for count in (2_000, 150_000, 1_000_000):
            ids = ",".join(map(str, range(1, count + 1)))
            body = b'{"syncStateSet":[%s],"syncStateSetEpoch":2}' % ids.encode()
            answer = await first.ask(1001, body, **FIELDS[1001])
            assert answer.code in (Code.SYSTEM_ERROR, Code.CONTROLLER_INVALID_REPLICAS)
            assert len(answer.remark or "") < 400
        names = json.dumps([str(number) for number in range(100_000)]).encode()
        assert (await first.ask(1006, names)).code == Code.SYSTEM_ERROR


async def test_what_goes_back_is_refused(autojump_clock: object) -> None:
    async with running() as world:
        first, second = await world.pair()
        assert (await second.elect(designateElect="true")).code == 0
        assert await first.alter([1, 2], 2, epoch=1) == Code.CONTROLLER_INVALID_MASTER
        assert await second.alter([1, 2], 3, epoch=1) == Code.CONTROLLER_FENCED_MASTER_EPOCH
        assert await second.alter([1, 2], 2, epoch=2) == Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
        assert await second.alter([1, 2], 3, epoch=2) == 0
        # A broker whose log was cut says so.
        assert (await second.beat(epoch=-1, maxOffset=0, confirmOffset=-1)).code == 0


@pytest.mark.parametrize("code", [1007, 1008, *range(1014, 1019)])
async def test_other_codes_are_not_supported(code: int, autojump_clock: object) -> None:
    async with running() as world:
        answer = await world.connect(1).ask(code)
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


@pytest.mark.parametrize(
    "fields",
    [
        {"brokerName": "a b`c"},
        {"brokerName": "x" * 300},
        {"clusterName": " "},
        {"registerCheckCode": "x" * 600},
        {"appliedBrokerId": 2**31},
    ],
)
async def test_a_set_of_a_bad_name_is_not_made(
    fields: dict[str, object], autojump_clock: object
) -> None:
    async with running() as world:
        answer = await world.connect(1).apply(**fields)
        assert answer.code in REFUSALS
        assert world.server.leadership.leader is not None
        assert world.server.leadership.leader.sets() == []


async def test_an_address_that_is_none_is_refused(autojump_clock: object) -> None:
    async with running() as world:
        broker = world.connect(1)
        await broker.apply()
        for address in ("", "x", "h:0", "h:65536", "h:99999999999999999999", "a b:1"):
            answer = await broker.register(brokerAddress=address)
            assert answer.code == Code.CONTROLLER_INVALID_REQUEST, address


# Settings


async def test_settings_are_shown_and_changed(autojump_clock: object) -> None:
    async with running() as world:
        broker = world.connect(1)
        shown = (await broker.ask(RequestCode.GET_CONTROLLER_CONFIG)).body.decode()
        assert "scanNotActiveBrokerInterval=5000\n" in shown
        assert "etcdPassword" not in shown
        code = RequestCode.UPDATE_CONTROLLER_CONFIG
        assert (await broker.ask(code, b"scanNotActiveBrokerInterval=4000\n")).code == 0
        shown = (await broker.ask(RequestCode.GET_CONTROLLER_CONFIG)).body.decode()
        assert "scanNotActiveBrokerInterval=4000\n" in shown
        refused = await broker.ask(code, b"configStorePath=/x\n")
        assert refused.code == Code.NO_PERMISSION
        assert (refused.remark or "").startswith("Can not update config in black list.")
        assert (await broker.ask(code, b"etcdPassword=x\n")).code == Code.NO_PERMISSION
