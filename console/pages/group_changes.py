"""Creating, changing and deleting a consumer group."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from ...client import NotFoundError
from ...client.core.topics import check_consumer_group
from ...operations.asking import asked_at_once
from ...remoting.bodies import SubscriptionGroupConfig
from ...remoting.bodies.ranges import out_of_range
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
    checked,
    wanted_attributes,
)

CREATE: Final = "create_group"
CHANGE: Final = "change_group"
DELETE: Final = "delete_group"

FIELDS: Final = tuple(
    field
    for field in msgspec.structs.fields(SubscriptionGroupConfig)
    if isinstance(field.default, bool | int)
)
"""The settings that have one value. Others keep theirs: retry policies and fixed subscriptions."""
NAMES: Final = tuple(field.encode_name for field in FIELDS)


class GroupForm(msgspec.Struct, frozen=True, rename="camel"):
    """What the fields of the form have.

    Attributes:
      settings: by RocketMQ's name.
      attributes: as text.
    """

    cluster: str
    settings: dict[str, bool | int]
    attributes: str


class GroupChange(msgspec.Struct, frozen=True, rename="camel"):
    """What creating or changing a group would do.

    Attributes:
      clusters: names of all clusters.
      plan: for each broker; None: nothing was chosen yet.
      differ: its brokers have different settings now, and would have the same.
    """

    group: str
    clusters: tuple[str, ...]
    form: GroupForm
    plan: tuple[BrokerPlan, ...] | None
    differ: bool


class _Asked(msgspec.Struct, frozen=True):
    """A change as it was asked for, and what is there, by broker name.

    Attributes:
      config: the settings of all brokers afterwards, without attributes.
    """

    before: dict[str, SubscriptionGroupConfig]
    config: SubscriptionGroupConfig
    attributes: dict[str, str]
    wanted: Wanted

    @property
    def signed_attributes(self) -> dict[str, str]:
        """The attributes as a request has them: changes, with a sign before each name."""
        changes = attribute_changes(
            (each.attributes for each in self.before.values()), self.attributes
        )
        return {
            f"-{name}" if value is None else f"+{name}": value or ""
            for name, value in changes.items()
        }


def _settings(config: SubscriptionGroupConfig) -> Settings:
    found: Settings = {field.encode_name: getattr(config, field.name) for field in FIELDS}
    return {**found, "attributes": config.attributes}


async def _on_brokers(ask: Ask, group: str, chosen: Clusters) -> dict[str, SubscriptionGroupConfig]:
    """The group on the brokers of a cluster. Raises: ClientError: one does not say."""
    try:
        info = await ask.admin.group(group)
    except NotFoundError:
        return {}
    names = {each.name for each in chosen.brokers}
    return {name: info.settings[name] for name in sorted(info.settings) if name in names}


KIND: Final = Kind(
    "group", check_consumer_group, _on_brokers, _settings, "group_exists", "no_group"
)


async def _asked(ask: Ask, *, is_new: bool) -> _Asked:
    group, chosen, before = await KIND.there(ask, is_new=is_new)
    base = next(iter(before.values()), SubscriptionGroupConfig())
    is_chosen = any(name in ask.query for name in NAMES)
    text = ask.query.get("attributes")
    attributes = base.attributes if text is None else wanted_attributes(text)
    config = _config(ask, base)
    after = _settings(msgspec.structs.replace(config, attributes=attributes))
    settings_before = {name: _settings(each) for name, each in before.items()}
    wanted = Wanted(group, chosen, settings_before, after, is_chosen)
    return _Asked(before, config, attributes, wanted)


def _config(ask: Ask, base: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
    """The settings of a broker with those that were chosen. Raises: PageError: one cannot be."""
    changed: dict[str, bool | int] = {}
    for field in FIELDS:
        text = ask.query.get(field.encode_name, "").strip()
        if not text:
            continue
        try:
            changed[field.name] = msgspec.convert(text, field.type, strict=False)
        except msgspec.ValidationError:
            raise PageError(400, "no_setting", name=field.encode_name, value=text) from None
    config = msgspec.structs.replace(base, **changed)
    fault = out_of_range(config)
    if fault is not None:
        raise PageError(400, "wrong_value", text=fault)
    return config


def _preview(*, is_new: bool) -> View:
    async def preview(ask: Ask) -> GroupChange:
        asked = await _asked(ask, is_new=is_new)
        wanted = asked.wanted
        first = next(iter(wanted.before.values()), None)
        form = GroupForm(
            wanted.clusters.chosen,
            {field.encode_name: getattr(asked.config, field.name) for field in FIELDS},
            attributes_text(asked.attributes),
        )
        differ = any(each != first for each in wanted.before.values())
        return GroupChange(wanted.name, wanted.clusters.names, form, wanted.plan(), differ)

    return preview


def _carry_out(what: str, *, is_new: bool) -> CarryOut:
    async def carry_out(ask: Ask) -> Done:
        asked = await _asked(ask, is_new=is_new)
        wanted = asked.wanted
        if not wanted.is_chosen:
            raise PageError(400, "missing_field", name=NAMES[0])
        settings = {
            name: getattr(asked.config, name)
            for name in SubscriptionGroupConfig.__struct_fields__
            if name != "group_name"
        }
        settings["attributes"] = asked.signed_attributes
        make = partial(
            ask.admin.create_group, wanted.name, cluster=wanted.clusters.chosen, **settings
        )
        return await KIND.carry_out(ask, what, wanted, make)

    return carry_out


class GroupDeletion(msgspec.Struct, frozen=True, rename="camel"):
    """What deleting a group would lose.

    Attributes:
      brokers: the settings on each, which are lost.
      members: connected ones.
      topics: in which it has offsets, sorted.
      lag, retries, dead_letters: messages, as in GroupProgress.
      error: what did not answer; "": everything did.
    """

    group: str
    brokers: dict[str, Settings]
    members: int
    topics: tuple[str, ...]
    lag: int
    retries: int
    dead_letters: int
    error: str


async def _preview_delete(ask: Ask) -> GroupDeletion:
    return await _lost(ask, ask.text("group"))


async def _lost(ask: Ask, group: str) -> GroupDeletion:
    (info, error), (progress, more) = await asked_at_once(
        partial(ask.admin.group, group), partial(ask.admin.progress, group)
    )
    return GroupDeletion(
        group=group,
        brokers={name: _settings(each) for name, each in info.settings.items()},
        members=len(progress.clients),
        topics=tuple(sorted({each.topic for each in progress.queues})),
        lag=progress.lag,
        retries=progress.retries,
        dead_letters=progress.dead_letters,
        error=error or more,
    )


async def _carry_out_delete(ask: Ask) -> Done:
    group = checked(ask, "group")
    lost = await _lost(ask, group)
    before = msgspec.to_builtins(lost)
    keeps, with_topics = ask.flag("keepOffsets"), ask.flag("withTopics")
    of = {"group": group}
    if keeps:
        of["keepOffsets"] = "true"
    if with_topics:
        of["withTopics"] = "true"
    with audited(ask, DELETE, of, before=before) as line:
        await ask.admin.delete_group(group, keep_offsets=keeps, with_topics=with_topics)
    return Done("groups", {}, DELETE, {"group": group, "number": line.number})


CHANGES = (
    Change(
        CREATE, Role.ADMINISTER, _preview(is_new=True), _carry_out(CREATE, is_new=True), "groups"
    ),
    Change(
        CHANGE, Role.ADMINISTER, _preview(is_new=False), _carry_out(CHANGE, is_new=False), "groups"
    ),
    Change(DELETE, Role.ADMINISTER, _preview_delete, _carry_out_delete, "groups"),
)
