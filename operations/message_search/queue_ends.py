"""The queues of a search, and where in each of them it begins and ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from ...client.admin.asking import Answers, ask_all, brokers_of, is_silence, queues_of
from ...client.connection.client import Client, reading_answer
from ...client.errors import RouteNotFoundError
from ...client.pulling.offsets import max_offset, min_offset, search_offset
from ...remoting.bodies import MessageQueue, TopicRouteData, TopicStatsTable
from ...remoting.headers import GetTopicStatsInfoRequestHeader
from ...remoting.request_codes import RequestCode
from .criteria import Criteria
from .cursors import QUEUES_MAX
from .deadlines import within
from .problems import Problem, SearchError


class Ends(NamedTuple):
    """What a queue holds: the offset of its first message, and that of the next one to come."""

    begin: int
    end: int


async def searched_queues(
    client: Client, criteria: Criteria, timeout_s: float
) -> tuple[TopicRouteData, list[MessageQueue]]:
    """The topic's route, and the queues that a search is about.

    Args:
      timeout_s: of the name server's answer.

    Raises: SearchError: NO_TOPIC, NO_QUEUE, TOO_MANY_QUEUES. ClientError: no name server answers.
    """
    full = client.with_namespace(criteria.topic)

    async def ask() -> TopicRouteData:
        return await client.route(full, is_fresh=True)

    try:
        route = await within(timeout_s, "a route", "the name server", ask)
    except RouteNotFoundError as error:
        raise SearchError(Problem.NO_TOPIC, topic=criteria.topic) from error
    queues = [
        queue
        for queue in queues_of(full, route, is_writable_too=True)
        if criteria.broker_name in ("", queue.broker_name)
        and criteria.queue_id in (None, queue.queue_id)
    ]
    if not queues:
        queue_id = "*" if criteria.queue_id is None else criteria.queue_id
        name = f"{criteria.broker_name or '*'}/{queue_id}"
        raise SearchError(Problem.NO_QUEUE, topic=criteria.topic, queue=name)
    if len(queues) > QUEUES_MAX:
        raise SearchError(Problem.TOO_MANY_QUEUES, count=len(queues), limit=QUEUES_MAX)
    return route, queues


async def ends_of(
    client: Client, route: TopicRouteData, queues: Iterable[MessageQueue], timeout_s: float
) -> Answers[MessageQueue, Ends]:
    """What queues hold: one request for each broker, and for queues that it does not list two.

    Args:
      timeout_s: of each answer.

    Returns: answers and errors by queue.
    """
    by_broker: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, []).append(queue)
    addresses = {broker.name: broker.address for broker in brokers_of(route)}

    async def table(name: str, found: list[MessageQueue]) -> dict[MessageQueue, Ends]:
        address = addresses.get(name)
        if len(found) == 1 or address is None:
            return {}
        header = GetTopicStatsInfoRequestHeader(topic=found[0].topic)
        code = RequestCode.GET_TOPIC_STATS_INFO
        answer = await client.request(address, code, header, timeout_s=timeout_s)
        with reading_answer(address):
            read = TopicStatsTable.from_body(answer.body).offset_table
        return {queue: Ends(each.min_offset, each.max_offset) for queue, each in read.items()}

    def ask_table(name: str) -> Callable[[], Awaitable[dict[MessageQueue, Ends]]]:
        return lambda: table(name, by_broker[name])

    async def ends(queue: MessageQueue) -> Ends:
        return Ends(await min_offset(client, queue), await max_offset(client, queue))

    def ask_ends(queue: MessageQueue) -> Callable[[], Awaitable[Ends]]:
        return lambda: within(timeout_s, "offsets", queue.broker_name, lambda: ends(queue))

    tables = await ask_all({name: ask_table(name) for name in by_broker})
    answers: Answers[MessageQueue, Ends] = Answers()
    missing: dict[MessageQueue, Callable[[], Awaitable[Ends]]] = {}
    for name, found in by_broker.items():
        known = tables.values.get(name, {})
        for queue in found:
            if name in tables.errors and is_silence(tables.errors[name]):
                answers.errors[queue] = tables.errors[name]
            elif queue in known:
                answers.values[queue] = known[queue]
            else:
                missing[queue] = ask_ends(queue)
    more = await ask_all(missing)
    answers.values.update(more.values)
    answers.errors.update(more.errors)
    return answers


async def offsets_near(
    client: Client, queues: Iterable[MessageQueue], time_ms: int, timeout_s: float
) -> Answers[MessageQueue, int]:
    """About where each queue's messages of a time begin: at most one message off, and of several
    messages of one millisecond any; which is what brokers say.

    Args:
      time_ms: ms since 1970.
      timeout_s: of each answer.
    """

    def ask(queue: MessageQueue) -> Callable[[], Awaitable[int]]:
        return lambda: within(
            timeout_s,
            "an offset by time",
            queue.broker_name,
            lambda: search_offset(client, queue, time_ms),
        )

    return await ask_all({queue: ask(queue) for queue in queues})
