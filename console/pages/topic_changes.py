"""Creating, changing and deleting a topic."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from ...client import RouteNotFoundError, TopicOnBroker
from ...client.core.topics import check_topic
from ...operations.asking import asked_at_once
from ...remoting.route_queues import QUEUES_COUNT_MAX
from ..errors import PageError
from ..roles import Role
from .audited import audited
from .page import Ask, CarryOut, Change, Done, View
from .settings_plan import (
    BrokerPlan,
    Clusters,
    Kind,
    Settings,
    Wanted,
    attribute_changes,
    attributes_text,
    check_not_own,
    checked,
    wanted_attributes,
)

CREATE: Final = "create_topic"
CHANGE: Final = "change_topic"
DELETE: Final = "delete_topic"

PERMS: Final = {"RW": 6, "R": 4, "W": 2}
QUEUES: Final = 8
"""Queues of a new topic on each broker, as those of `Admin.create_topic`."""


class TopicForm(msgspec.Struct, frozen=True, rename="camel"):
    """What the fields of the form have.

    Attributes:
      perm: one of PERMS.
      attributes: as text.
    """

    cluster: str
    queues: int
    read_queues: int
    perm: str
    order: bool
    attributes: str


class TopicChange(msgspec.Struct, frozen=True, rename="camel"):
    """What creating or changing a topic would do.

    Attributes:
      clusters: names of all clusters.
      plan: for each broker; None: nothing was chosen yet.
      has_fewer: a broker would have fewer queues to read from.
    """

    topic: str
    clusters: tuple[str, ...]
    form: TopicForm
    plan: tuple[BrokerPlan, ...] | None
    has_fewer: bool


async def _on_brokers(ask: Ask, topic: str, chosen: Clusters) -> dict[str, TopicOnBroker]:
    """The topic on the brokers of a cluster. Raises: ClientError: one does not say."""
    try:
        info = await ask.admin.topic(topic)
    except RouteNotFoundError:
        return {}
    names = {each.name for each in chosen.brokers}
    return {each.broker_name: each for each in info.brokers if each.broker_name in names}


def _settings(topic: TopicOnBroker) -> Settings:
    return {
        "queues": topic.write_queues,
        "readQueues": topic.read_queues,
        "perm": topic.perm_text,
        "order": topic.order,
        "attributes": topic.attributes,
    }


def _check(topic: str) -> None:
    check_topic(topic)
    check_not_own(topic)


KIND: Final = Kind("topic", _check, _on_brokers, _settings, "topic_exists", "not_in_cluster")


class _Asked(msgspec.Struct, frozen=True):
    """A change as it was asked for, and what is there."""

    before: dict[str, TopicOnBroker]
    form: TopicForm
    attributes: dict[str, str]
    wanted: Wanted


async def _asked(ask: Ask, *, is_new: bool) -> _Asked:
    topic, chosen, before = await KIND.there(ask, is_new=is_new)
    is_chosen = "queues" in ask.query
    first = next(iter(before.values()), None)
    form = _form(ask, chosen.chosen) if is_chosen else _form_of(first, chosen.chosen)
    attributes = wanted_attributes(form.attributes)
    after: Settings = {
        "queues": form.queues,
        "readQueues": form.read_queues,
        "perm": form.perm,
        "order": form.order,
        "attributes": attributes,
    }
    settings_before = {name: _settings(each) for name, each in before.items()}
    wanted = Wanted(topic, chosen, settings_before, after, is_chosen)
    return _Asked(before, form, attributes, wanted)


def _form_of(topic: TopicOnBroker | None, cluster: str) -> TopicForm:
    if topic is None:
        return TopicForm(cluster, QUEUES, QUEUES, "RW", False, "")
    return TopicForm(
        cluster,
        topic.write_queues,
        topic.read_queues,
        topic.perm_text if topic.perm_text in PERMS else "RW",
        topic.order,
        attributes_text(topic.attributes),
    )


def _form(ask: Ask, cluster: str) -> TopicForm:
    queues = ask.number("queues")
    form = TopicForm(
        cluster,
        queues,
        ask.number("readQueues", queues),
        ask.query.get("perm", "RW"),
        ask.flag("order"),
        ask.query.get("attributes", ""),
    )
    if not (1 <= queues <= QUEUES_COUNT_MAX and 1 <= form.read_queues <= QUEUES_COUNT_MAX):
        raise PageError(400, "no_queue_count", limit=QUEUES_COUNT_MAX)
    if form.perm not in PERMS:
        raise PageError(400, "no_perm", value=form.perm)
    return form


def _preview(*, is_new: bool) -> View:
    async def preview(ask: Ask) -> TopicChange:
        asked = await _asked(ask, is_new=is_new)
        plan = asked.wanted.plan()
        fewer = any(each.read_queues > asked.form.read_queues for each in asked.before.values())
        names = asked.wanted.clusters.names
        return TopicChange(asked.wanted.name, names, asked.form, plan, fewer)

    return preview


def _carry_out(what: str, *, is_new: bool) -> CarryOut:
    async def carry_out(ask: Ask) -> Done:
        asked = await _asked(ask, is_new=is_new)
        if not asked.wanted.is_chosen:
            raise PageError(400, "missing_field", name="queues")
        attributes = attribute_changes(
            (each.attributes for each in asked.before.values()), asked.attributes
        )
        make = partial(
            ask.admin.create_topic,
            asked.wanted.name,
            asked.form.queues,
            read_queues=asked.form.read_queues,
            perm=PERMS[asked.form.perm],
            order=asked.form.order,
            cluster=asked.wanted.clusters.chosen,
            attributes=attributes,
        )
        return await KIND.carry_out(ask, what, asked.wanted, make)

    return carry_out


class TopicDeletion(msgspec.Struct, frozen=True, rename="camel"):
    """What deleting a topic would lose.

    Attributes:
      brokers: the settings on each, which are lost.
      count: messages.
      groups: those with offsets in it, or that subscribe to it.
      error: what did not answer; "": everything did.
    """

    topic: str
    brokers: dict[str, Settings]
    count: int
    groups: tuple[str, ...]
    error: str


async def _preview_delete(ask: Ask) -> TopicDeletion:
    return await _lost(ask, ask.text("topic"))


async def _lost(ask: Ask, topic: str) -> TopicDeletion:
    check_not_own(topic)
    (info, error), (queues, more), (groups, last) = await asked_at_once(
        partial(ask.admin.topic, topic),
        partial(ask.admin.offsets, topic),
        partial(ask.admin.topic_groups, topic),
    )
    return TopicDeletion(
        topic,
        {each.broker_name: _settings(each) for each in info.brokers},
        sum(each.count for each in queues),
        tuple(sorted(groups)),
        error or more or last,
    )


async def _carry_out_delete(ask: Ask) -> Done:
    topic = checked(ask, "topic")
    lost = await _lost(ask, topic)
    before = {"brokers": lost.brokers, "messages": lost.count, "groups": lost.groups}
    of = {"topic": topic}
    with audited(ask, DELETE, of, before=before) as line:
        await ask.admin.delete_topic(topic)
    return Done("topics", {}, DELETE, {"topic": topic, "number": line.number})


CHANGES = (
    Change(
        CREATE, Role.ADMINISTER, _preview(is_new=True), _carry_out(CREATE, is_new=True), "topics"
    ),
    Change(
        CHANGE, Role.ADMINISTER, _preview(is_new=False), _carry_out(CHANGE, is_new=False), "topics"
    ),
    Change(DELETE, Role.ADMINISTER, _preview_delete, _carry_out_delete, "topics"),
)
