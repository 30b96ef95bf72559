"""Samples of a cluster: rates between two, topics that take turns, brokers that go away."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio

from trocket.client import Admin, ConnectError, Message, MessageQueue, Producer, PullConsumer
from trocket.operations.sampling import PAGE, PROBE_S, TERMINAL, Sample, Sampler
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .peers import Group, Peer, broker_answers, silent

TIMEOUT_S = 30.0
HANG_S = 2.0


def sampled(broker: Broker, verb: Any) -> Any:
    async def main() -> Any:
        with anyio.fail_after(TIMEOUT_S):
            async with Admin(broker.url, timeout_s=1.0) as admin:
                return await verb(admin, Sampler(admin))

    return anyio.run(main, backend="trio")


def topics_of(sample: Sample) -> dict[str, Any]:
    return {row.topic: row for row in sample.topics}


def test_rates_are_what_came_between_two_samples(broker: Broker) -> None:
    async def verb(admin: Admin, sampler: Sampler) -> None:
        async def send(count: int) -> None:
            async with Producer(admin.client) as producer:
                for _ in range(count):
                    await producer.send(Message("Rates", "x"))

        await admin.create_topic("Rates", 1)
        await send(2)
        async with PullConsumer(admin.client, group="rates") as consumer:
            await consumer.commit({MessageQueue("Rates", "broker-a", 0): 1})
            times = [anyio.current_time()]
            first = topics_of(await sampler.sample())["Rates"]
            times.append(anyio.current_time())
            assert (first.in_rate, first.out_rate, first.lag) == (None, None, 1)
            await send(10)
            await consumer.commit({MessageQueue("Rates", "broker-a", 0): 6})
        times.append(anyio.current_time())
        sample = await sampler.sample()
        times.append(anyio.current_time())
        second = topics_of(sample)["Rates"]
        assert second.lag == 6
        shortest_s, longest_s = times[2] - times[1], times[3] - times[0]
        assert 10 / longest_s <= second.in_rate <= 10 / shortest_s
        assert 5 / longest_s <= second.out_rate <= 5 / shortest_s
        (group,) = [row for row in sample.groups if row.group == "rates"]
        assert (group.out_rate, group.topics) == (second.out_rate, ("Rates",))
        await admin.delete_group("rates")
        await admin.delete_topic("Rates")

    sampled(broker, verb)


@pytest.mark.slow
def test_topics_without_a_consumer_take_turns(broker: Broker) -> None:
    async def verb(admin: Admin, sampler: Sampler) -> None:
        names = [f"lone{number:02}" for number in range(TERMINAL.topics + 4)]
        for name in names:
            await admin.create_topic(name, 1)
        first = topics_of(await sampler.sample())
        assert {name: first[name].queues for name in names} == dict.fromkeys(names, 1)
        known = []
        for _ in range(4):
            rows = topics_of(await sampler.sample())
            known.append(sum(rows[name].in_rate is not None for name in names))
        assert known[0] < known[1] <= known[2] == known[3] == len(names)
        for name in names:
            await admin.delete_topic(name)

    sampled(broker, verb)


def test_a_broker_that_goes_and_comes_back_has_its_error_in_its_row() -> None:
    with Broker() as broker:

        async def verb(admin: Admin, sampler: Sampler) -> None:
            (row,) = (await sampler.sample()).brokers
            assert row.error == ""
            await anyio.to_thread.run_sync(broker.restart)
            for _ in range(100):
                try:
                    (row,) = (await sampler.sample()).brokers
                except ConnectError:
                    continue
                if not row.error:
                    return
            pytest.fail(row.error)

        sampled(broker, verb)


# Brokers that hang


async def test_a_thousand_topics_and_groups_need_few_requests() -> None:
    groups = {f"g{number:04}": Group(lag=number) for number in range(1000)}
    topics = [f"T{number:04}" for number in range(1000)]
    for bounds, others in ((TERMINAL, 48), (PAGE, 6)):
        async with Peer(broker_answers(groups, topics)).running() as peer:
            peer.brokers = {"broker-a": {0: peer.address}}
            async with Admin(peer.address) as admin:
                sampler = Sampler(admin, bounds=bounds)
                for count in (3 + others, 2 + others):
                    before = peer.counts.total()
                    sample = await sampler.sample()
                    # One more goes to the name server.
                    assert peer.counts.total() - before == 1 + count
        assert len(sample.groups) == 1000
        assert max(row.lag for row in sample.groups) == 999
        assert sample.brokers[0].error == ""


async def test_a_broker_that_hangs_costs_one_time_limit_and_then_a_probe() -> None:
    answers = broker_answers({"g": Group(lag=5)})
    is_stopped = True

    def running(request: RemotingCommand) -> RemotingCommand | None:
        if is_stopped:
            return None
        return answers[RequestCode.GET_BROKER_RUNTIME_INFO](request)

    stopped = Peer({**answers, RequestCode.GET_BROKER_RUNTIME_INFO: running})
    async with Peer(answers).running() as peer, stopped.running():
        peer.brokers = {"broker-a": {0: peer.address}, "broker-b": {0: stopped.address}}
        async with Admin(peer.address, timeout_s=HANG_S) as admin:
            sampler = Sampler(admin)
            took = []
            for _ in range(2):
                begin_s = trio.current_time()
                sample = await sampler.sample()
                took.append(trio.current_time() - begin_s)
                good, bad = sample.brokers
                assert good.error == ""
                assert "did not answer GET_BROKER_RUNTIME_INFO within" in bad.error
                assert [row.lag for row in sample.groups] == [5]
            assert took[0] >= HANG_S > PROBE_S + 0.5 > took[1] >= PROBE_S
            assert set(stopped.counts) == {RequestCode.GET_BROKER_RUNTIME_INFO}
            is_stopped = False
            assert [row.error for row in (await sampler.sample()).brokers] == ["", ""]


async def test_a_sample_ends_at_its_deadline_wherever_a_broker_hangs() -> None:
    answers = broker_answers({"g": Group(lag=5)})
    answers[RequestCode.QUERY_CONSUME_TIME_SPAN] = silent
    async with Peer(answers).running() as peer:
        peer.brokers = {"broker-a": {0: peer.address}}
        async with Admin(peer.address, timeout_s=30) as admin:
            sample = await Sampler(admin, limit_s=0.3).sample()
    assert sample.brokers[0].error == "it did not answer all within 0.3 s"
    assert [row.lag for row in sample.groups] == [5]


async def test_a_broker_that_refuses_the_progress_of_groups_tells_its_topics() -> None:
    answers = broker_answers({}, ["T"])
    answers[RequestCode.GET_BROKER_CONSUME_STATS] = lambda request: request.answer(1, "no")
    async with Peer(answers).running() as peer:
        peer.brokers = {"broker-a": {0: peer.address}}
        async with Admin(peer.address) as admin:
            sample = await Sampler(admin).sample()
    assert "refused GET_BROKER_CONSUME_STATS" in sample.brokers[0].error
    assert [row.topic for row in sample.topics] == ["T"]
