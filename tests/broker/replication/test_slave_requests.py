"""Requests of slaves: the same answers as Apache's broker, readable by its slave."""

from __future__ import annotations

import json

import trio

from trocket.broker.delivering.timer_checkpoint import TimerCheckpoint
from trocket.broker.tables.consumer_offset_manager import parse_offsets
from trocket.remoting import fastjson
from trocket.remoting.bodies import HARuntimeInfo
from trocket.remoting.codec import decode_frame

from ...kit import START_MS, broker_client, embedded_broker, pull_fields, send_fields

SEND, PULL, UPDATE_OFFSET = 310, 11, 15
OFFSETS, DELAY_OFFSETS, TIMER_CHECKPOINT, TIMER_METRICS, REQUEST_MODES, HA_STATUS = (
    43, 45, 60, 61, 402, 907,
)  # fmt: skip
KEY = "UNIQ_KEY\1A\2"


async def test_43_has_the_offsets_of_all_groups_as_a_slave_can_parse_them() -> None:
    async with broker_client() as client:
        await client.ask(SEND, send_fields(), b"x")
        await client.ask(PULL, pull_fields(sysFlag=4))
        queue = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1}
        await client.ask(UPDATE_OFFSET, queue)
        answer = await client.ask(OFFSETS, {})
        assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {})
        tree = fastjson.loads(answer.body)
        assert tree["offsetTable"] == {"T@CG": {0: 1}}
        assert tree.keys() == {"dataVersion", "groupTopicMap", "offsetTable", "pullOffsetTable"}
        assert parse_offsets(answer.body)[0] == {"T@CG": {0: 1}}
        # With white space between them, or bare keys of the second table, the slave of 5.5.0 fails.
        assert b'"offsetTable":{"T@CG":{0:1}},"pullOffsetTable":{"T@CG":{"0":1}}}' in answer.body


async def test_45_is_the_text_of_delay_offset_json(autojump_clock) -> None:
    async with broker_client() as client:
        assert fastjson.loads((await client.ask(DELAY_OFFSETS, {})).body)["offsetTable"] == {}
        await client.ask(SEND, send_fields(i=f"{KEY}DELAY\x012\2"), b"5 s")
        await trio.sleep(6)
        answer = await client.ask(DELAY_OFFSETS, {})
        tree = fastjson.loads(answer.body)
        assert (answer.code, tree["offsetTable"]) == (0, {2: 1})
        assert tree.keys() == {"dataVersion", "offsetTable"}


async def test_60_says_how_far_timer_messages_are_delivered(autojump_clock) -> None:
    async with broker_client() as client:
        for delay_s in (3, 30):
            await client.ask(SEND, send_fields(i=f"{KEY}TIMER_DELAY_SEC\x01{delay_s}\2"), b"x")
        await trio.sleep(10)
        answer = await client.ask(TIMER_CHECKPOINT, {})
        known = TimerCheckpoint.from_page(answer.body)
        now_ms = START_MS + 10_000
        assert known == TimerCheckpoint(read_time_ms=now_ms, read_offset=2, waiting_offset=1)
        # Apache's slave reads the first 56 bytes: time, log position, two queue offsets, version.
        numbers = [int.from_bytes(answer.body[at : at + 8], "big") for at in range(0, 56, 8)]
        assert numbers == [now_ms, 0, 1, 1, 0, now_ms, 0]


async def test_without_timers_60_and_61_are_refused_in_apaches_words() -> None:
    async with broker_client(timer_wheel_enable=False) as client:
        answers = [await client.ask(code, {}) for code in (TIMER_CHECKPOINT, TIMER_METRICS)]
        assert [(answer.code, answer.remark) for answer in answers] == [
            (1, "The checkpoint is null"),
            (1, "The timer message store is null"),
        ]


async def test_61_and_402_have_nothing_to_tell() -> None:
    async with broker_client() as client:
        metrics = json.loads((await client.ask(TIMER_METRICS, {})).body)
        assert metrics == {
            "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0}, "timingCount": {},
        }  # fmt: skip
        modes = await client.ask(REQUEST_MODES, {})
        assert (modes.code, modes.body) == (0, b'{"messageRequestModeMap":{}}')


async def test_907_is_the_recorded_answer_of_5_5_0(golden) -> None:
    for line in (golden / "wire" / "json-5.5.0.jsonl").read_text().splitlines():
        frame = json.loads(line)
        if frame["dir"] == "response" and frame["request_code"] == HA_STATUS:
            break
    theirs = decode_frame(bytes.fromhex(frame["frame_hex"]))
    body = HARuntimeInfo.from_body(theirs.body)
    async with embedded_broker() as broker:
        ours = await (await broker.connect()).ask(HA_STATUS, {})
    assert (ours.code, ours.ext_fields, ours.remark) == (0, theirs.ext_fields, theirs.remark)
    body.master_commit_log_max_offset = 0
    assert HARuntimeInfo.from_body(ours.body) == body
    assert json.loads(ours.body) == json.loads(theirs.body) | {"masterCommitLogMaxOffset": 0}
