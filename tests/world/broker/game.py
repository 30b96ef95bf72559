"""Plays a program against a broker, and holds what is seen against the oracle after each step."""

from __future__ import annotations

import logging

from ..broken import Broken
from .groups import Group
from .lookups import check_lookups
from .machine import Machine, run_in
from .oracle import Oracle, Place
from .peers import QUEUES, TOPIC, Consumer, Observer, Producer
from .pop_play import PopPlay
from .pop_programs import POP_STEPS
from .programs import (
    AnswerChecks,
    Consume,
    Die,
    End,
    HangUp,
    Leave,
    Poll,
    Prepare,
    Program,
    Recall,
    Restart,
    Send,
    SendLater,
    SendTimer,
    SetClock,
    Unlock,
    Wait,
)
from .transactions import PARKED, Decision, Transactions

ROUNDS_MAX = 200
"""Rounds of the finish: fifteen checks with three moments each, and some."""

LOOKUPS_MS = 10_000
"""N7: look-ups find everything no later than this."""

CHAINS_MS = 20_000
"""What is popped is stored, then on the device, then committed, then saved: one after the other, so
time must not jump over several of these."""

HOLD_MS = 30 * 60 * 1000
"""In the finish pulls wait for messages."""


class Game:
    """One run of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.machine = Machine(
            sync=program.sync, check_max=program.check_max, seed=program.seed,
            merges=program.merges, retry_v2=program.retry_v2,
        )  # fmt: skip
        self.oracle = oracle = Oracle(sync=program.sync, now_ms=self.machine.now_ms)
        self.transactions = Transactions(oracle, program.check_max)
        self.groups = [
            Group(oracle, "ALL", (), in_order=False),
            Group(oracle, "SOME", ("a", "Aa"), in_order=False),
            Group(oracle, "ORDER", (), in_order=True),
        ]
        self.producers = [
            Producer(self.machine, oracle, self.transactions, f"p{number}") for number in range(2)
        ]
        self.consumers = [
            Consumer(self.machine, oracle, group, f"{group.name}{number}")
            for group in self.groups
            for number in range(2)
        ]
        self.observer = Observer(self.machine, oracle, "observer")
        self.places: list[Place] = [(TOPIC, queue_id) for queue_id in range(QUEUES)]
        for group in self.groups:
            self.places += [(f"%RETRY%{group.name}", 0), (f"%DLQ%{group.name}", 0)]
        self.places.append((PARKED, 0))
        self.pops = PopPlay(self.machine, oracle, program)
        self.places += self.pops.places
        self._read_to = dict.fromkeys(self.places, 0)
        self._kept_writes: int | None = None

    def play(self) -> None:
        """Play it. Raises: Broken: a promise does not hold."""
        run_in(self.machine, self._play, self.program.seed)

    async def _play(self) -> None:
        for step in self.program.steps:
            if isinstance(step, POP_STEPS):
                await self.pops.play(step)
            else:
                await getattr(self, "_" + type(step).__name__)(step)
            await self._after_step()
        await self._finish()

    async def _after_step(self) -> None:
        while True:
            await self.machine.settle()
            if not self.machine.is_dead:
                await self._observe()
            if not self.machine.is_dead:
                return
            await self._come_back()

    # ---- looking -------------------------------------------------------------------------

    async def _observe(self) -> None:
        """Read what is new, and check everything."""
        store, ends = self.machine.controller.store, {}
        for place in self.places:
            end = ends[place] = store.max_offset(*place)
            if end < self._read_to[place]:
                raise Broken("N5", f"{place} ended at {self._read_to[place]}, and ends at {end}")
            if end > self._read_to[place]:
                await self._read(place, self._read_to[place], end)
        if self.machine.is_dead:
            return
        now_ms = self.machine.now_ms
        self.oracle.check(now_ms)
        self._note_producers()
        self.transactions.check(now_ms)
        for group in self.groups:
            group.check(ends)
        for consumer in self.consumers:
            consumer.check_held_pulls()
        self.pops.check(now_ms)

    async def _read(self, place: Place, start: int, end: int) -> None:
        await self.observer.connect()
        messages = await self.observer.read(place, start)
        if self.machine.is_dead:
            return
        for message in messages:
            self.oracle.saw(message, self.machine.now_ms)
        self.oracle.saw_end(place, end)
        self._read_to[place] = end

    def _note_producers(self) -> None:
        there = any(producer.is_connected for producer in self.producers)
        self.transactions.producer_there(there, self.machine.now_ms)

    # ---- the broker's life ---------------------------------------------------------------

    async def _Restart(self, step: Restart) -> None:
        await self.machine.stop()
        if not self.machine.is_dead:  # it may be killed while it stops
            self._set_clock(step.clock_by_ms)
            await self._start(lossy=False)

    async def _Die(self, step: Die) -> None:
        self._kept_writes = step.kept_writes
        self.machine.die_after(step.writes)
        if not step.writes:
            self.machine.die_now()

    async def _come_back(self) -> None:
        """The broker is dead: take note of it, and start another one."""
        died_ms = self.machine.quiet_ms
        await self.machine.die(kept_writes=self._kept_writes)
        self.oracle.crashed(died_ms)
        self.transactions.crashed(died_ms)
        for group in self.groups:
            group.crashed(died_ms)
        lossy = self._kept_writes is not None and not self.program.sync
        self.pops.crashed(died_ms, loses=lossy)
        if lossy:
            self.oracle.power_was_cut(died_ms)
            self.transactions.power_was_cut(died_ms)
        await self._start(lossy=lossy)

    async def _start(self, *, lossy: bool) -> None:
        """Start a broker, and read everything again."""
        died_ms = self.machine.quiet_ms
        await self.machine.start()
        self.oracle.restarted(self.machine.now_ms)
        self.transactions.producer_there(False, self.machine.now_ms)
        for group in self.groups:
            group.locks.restarted()
        for place in self.places:
            if lossy:
                await self._note_lost(place, died_ms)
            end = self.machine.controller.store.max_offset(*place)
            if end < self._read_to[place]:
                raise Broken("N5", f"{place} ended at {self._read_to[place]}, and ends at {end}")
            if end:
                await self._read(place, 0, end)

    async def _note_lost(self, place: Place, died_ms: int) -> None:
        """What a power cut took from a queue; other messages may be there already."""
        known, kept = self.oracle.log[place], 0
        await self.observer.connect()
        for message in await self.observer.read(place, 0):
            if known.get(kept) != message:
                break
            kept += 1
        self.oracle.lost(place, kept, died_ms)
        for group in self.groups:
            group.lost(place, kept)
        self.pops.lost(place, kept)
        self._read_to[place] = kept

    # ---- steps ---------------------------------------------------------------------------

    async def _Send(self, step: Send) -> None:
        producer = self.producers[step.producer]
        await producer.connect()
        if step.how == "batch":
            producer.send_batch(step.queue, step.tags)
        elif step.how == "one by one":
            for tag in step.tags:
                producer.send(step.queue, [tag])
                await self.machine.settle()
        else:
            producer.send(step.queue, step.tags, oneway=step.how == "oneway")

    async def _SendLater(self, step: SendLater) -> None:
        producer = self.producers[step.producer]
        await producer.connect()
        producer.send_later(step.queue, step.tag, step.level)

    async def _SendTimer(self, step: SendTimer) -> None:
        producer = self.producers[step.producer]
        await producer.connect()
        producer.send_timer(step.queue, step.tag, step.name, step.delay_ms)

    async def _Recall(self, step: Recall) -> None:
        producer = self.producers[step.producer]
        await producer.connect()
        await producer.recall(step.which)

    async def _Prepare(self, step: Prepare) -> None:
        producer = self.producers[step.producer]
        await producer.connect()
        number = producer.prepare(step.queue, step.tag, step.decision, step.level)
        await self.machine.settle()
        if step.says != "nothing":
            decision = Decision.UNKNOWN if step.says == "unknown" else step.decision
            producer.end(number, decision)

    async def _End(self, step: End) -> None:
        numbers = list(self.transactions.all)
        if numbers:
            producer = self.producers[step.producer]
            await producer.connect()
            number = numbers[-1 - step.which % len(numbers)]
            decision = self.transactions.all[number].decision
            producer.end(number, decision)
            if step.at_once:
                producer.end(number, decision)

    async def _AnswerChecks(self, step: AnswerChecks) -> None:
        producer = self.producers[step.producer]
        await producer.connect()
        producer.answer_checks(knows=step.knows)

    async def _Poll(self, step: Poll) -> None:
        await self.consumers[step.consumer].poll(step.hold_s * 1000, step.count_max)

    async def _Consume(self, step: Consume) -> None:
        await self.consumers[step.consumer].consume(failing=step.failing, level=step.level)

    async def _Leave(self, step: Leave) -> None:
        consumer = self.consumers[step.consumer]
        if step.politely and consumer.is_connected:
            await consumer.leave()
        await consumer.hang_up()

    async def _Unlock(self, step: Unlock) -> None:
        consumer = self.consumers[4 + step.consumer % 2]
        await consumer.connect()
        await consumer.unlock((TOPIC, step.queue))

    async def _HangUp(self, step: HangUp) -> None:
        await self.producers[step.producer].hang_up()

    async def _Wait(self, step: Wait) -> None:
        await self._wait_until(self.machine.now_ms + step.milliseconds)

    async def _SetClock(self, step: SetClock) -> None:
        self._set_clock(step.by_ms)
        self._see_clock()

    def _see_clock(self) -> None:
        """Let the broker see the new time now: time moves here by more than the hundredth of a
        wait after which its services look at the clock."""
        self.machine.controller.wall_clock_set()

    def _set_clock(self, by_ms: int) -> None:
        self.machine.clock.wrong_ms += by_ms
        self.oracle.clock_set(by_ms)

    async def _wait_until(self, end_ms: int) -> None:
        machine = self.machine
        slow_until_ms = machine.now_ms + (CHAINS_MS if self.pops.has_groups else 0)
        while machine.now_ms < end_ms and not machine.is_dead:
            next_ms = min(end_ms, self._next_moment() or end_ms)
            if machine.now_ms < slow_until_ms:
                next_ms = min(next_ms, machine.now_ms + 1_000)
            machine.clock.advance(next_ms - machine.now_ms)
            await machine.settle()
            if not machine.is_dead:
                await self._observe()

    def _next_moment(self) -> int | None:
        now_ms = self.machine.now_ms
        moments = (
            self.oracle.next_moment(now_ms),
            self.transactions.next_moment(now_ms),
            *self.pops.moments(now_ms),
        )
        return min((moment for moment in moments if moment is not None), default=None)

    # ---- the end -------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Nothing fails any more: everything comes to its end, and nothing may be missing."""
        self.machine.live_on()
        self._set_clock(-self.machine.clock.wrong_ms)
        self._see_clock()
        for consumer in self.consumers:
            await consumer.hang_up()
        await self.pops.hang_up()
        await self._wait_until(self.machine.now_ms + 61_000)  # until the last lock is free
        quiet_rounds = 0
        for _ in range(ROUNDS_MAX):
            await self._everybody_does_their_part()
            moment = self._next_moment()
            if moment is None:
                quiet_rounds += 1
                if quiet_rounds > 3 or not self.transactions.all:
                    break
                moment = self.machine.now_ms + 31_000  # for transactions without a known end
            await self._wait_until(moment)
        else:
            raise Broken("end", f"there is always something more, now {self.machine.now_ms}")
        for group in self.groups:
            group.check_all_done()
        self.pops.check_all_done()
        self.transactions.check_all_through()
        known_ms = self.machine.now_ms
        await self._wait_until(known_ms + LOOKUPS_MS)
        await check_lookups(self.observer, self.oracle, known_ms)

    async def _everybody_does_their_part(self) -> None:
        for producer in self.producers:
            await producer.connect()
            producer.answer_checks()
        await self._after_step()
        for consumer in self.consumers[::2]:
            await consumer.poll(HOLD_MS, 32)
            while any(consumer.inbox.values()):
                await consumer.renew_locks()
                await consumer.consume(failing=0, level=0)
                await consumer.poll(HOLD_MS, 32)
        await self.pops.finish()
        await self._after_step()


def play(program: Program) -> None:
    """Play a program. Raises: Broken: a promise does not hold."""
    logger = logging.getLogger("trocket")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    game = Game(program)
    try:
        game.play()
    finally:
        game.machine.forget_links()
        logger.setLevel(level)
