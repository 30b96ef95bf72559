"""SubscriptionGroupManager: the broker's consumer groups and their settings.

A group is created by an administrator (200, 225), or by its first heartbeat, pull or query (`find`)
if `autoCreateSubscriptionGroup` allows that.

Java counterpart: broker/subscription/SubscriptionGroupManager.java of 5.3.3. Pure, but for the
`save` it is given. A `SubscriptionGroupConfig` is never changed in place, always replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from ...common.clock import Clock
from ...common.steps import Steps, at_once
from ...common.topic_names import is_system_group
from ...common.topic_validator import refuse_group, refuse_topic
from ...disk.errors import StoreIOError
from ...disk.json_config import parse
from ...disk.state_file import Save, StateFile
from ...remoting.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    out_of_range,
)
from ...remoting.errors import RequestRefused
from ...remoting.refusals import Refusals
from ...remoting.response_codes import ResponseCode
from ..settings.attributes import GROUP_ATTRIBUTES, alter_attributes
from ..settings.creation_rate import CreationRate
from .config_text import SUBSCRIPTION_GROUPS, Json, WrittenBodies, next_version, pretty, written
from .table_numbers import correct_groups, correct_version
from .topic_queues import MASTERS_TABLE, mended_group

if TYPE_CHECKING:
    from ..settings.config import BrokerConfig

logger = logging.getLogger(__name__)

FORBIDDEN_COUNT_MAX: Final = 50_000
"""Pairs of group and topic that are forbidden, as many as groups. RocketMQ has no bound, although
the names of a request need not exist."""

_READ_BIT: Final = 1 << 2
"""Source: PermName.INDEX_PERM_READ of 5.5.0."""

SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
"""Groups that every broker has from its start. Source: SubscriptionGroupManager.init."""


class SubscriptionGroupManager:
    """The table of groups. Not thread-safe: used from the broker's one trio run.

    Args:
      config: the broker's configuration; read at each use, so changes take effect at once.
      clock: gives the data version's time.
      save_later: schedules a write, see `StateFile`.
      refusals: counts new groups that are refused.

    Attributes:
      subscription_group_table: group by name, always the same dict; only this class changes it.
      forbidden_table: by group and topic the bits of what the group may not do; only this class
        changes it.
      data_version: increases with every change.
      is_corrected: the file that was read had impossible numbers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        save: Save,
        save_later: Callable[[StateFile], None] | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._refusals = refusals or Refusals()
        self._rate = CreationRate(
            config.group_rates, config.limit_exempt_addresses, clock.monotonic_s
        )
        self.file = StateFile(
            SUBSCRIPTION_GROUPS,
            "groups",
            save,
            self._text_to_save,
            save_later,
            on_saved=self._on_saved,
        )
        self._texts = WrittenBodies()
        self.is_corrected = False
        self._unsaved: set[str] = set()
        self._saving: set[str] = set()  # those of `_unsaved` that the running save contains
        self.data_version = DataVersion(timestamp=clock.wall_ms(), counter=0)
        self.forbidden_table: dict[str, dict[str, int]] = {}
        self.subscription_group_table: dict[str, SubscriptionGroupConfig] = {
            group: SubscriptionGroupConfig(group_name=group) for group in SYSTEM_GROUPS
        }

    def contains(self, group: str) -> bool:
        """Whether there is such a group."""
        return group in self.subscription_group_table

    def find(self, group: str, remote_address: str = "") -> SubscriptionGroupConfig | None:
        """A group by name, created if that is allowed.

        Args:
          group: a name from a client.
          remote_address: of the client; "": the broker itself.
        Returns: the group; None: it does not exist and may not be created, or its name is not
          allowed.
        Raises: RequestRefused: SUBSCRIPTION_GROUP_NOT_EXIST if it does not exist, and there are
          groupsMax groups; SYSTEM_BUSY if too many groups were created lately.
        Source: SubscriptionGroupManager.findSubscriptionGroupConfig.
        """
        known = self.subscription_group_table.get(group)
        if known is not None:
            return known
        if not self._config.auto_create_subscription_group and not is_system_group(group):
            return None
        if refuse_group(group) is not None:
            return None
        # Any name in a request would create a group, so their number and rate are limited.
        count = len(self.subscription_group_table)
        if count >= self._config.groups_max:
            reason = f"group[{group}] is not created: there are {count} groups"
            self._refuse_new(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "groupsMax", remote_address, reason
            )
        key = self._rate.take(remote_address)
        if key is not None:
            reason = f"group[{group}] is not created now, too many were lately"
            self._refuse_new(ResponseCode.SYSTEM_BUSY, key, remote_address, reason)
        created = SubscriptionGroupConfig(group_name=group)
        logger.info("create new group: %(settings)s", {"settings": created})
        self.subscription_group_table[group] = created
        self._unsaved.add(group)
        self._changed()
        return created

    def _refuse_new(
        self, code: ResponseCode, key: str, remote_address: str, reason: str
    ) -> NoReturn:
        self._refusals.note(key, remote_address or "the broker", reason)
        raise RequestRefused(code, f"{reason}, which is the limit {key}")

    def is_saved(self, group: str) -> bool:
        """Whether an existing group is on disk, so that it survives a crash."""
        return group not in self._unsaved

    def require_saved(self, group: str) -> None:
        """Make a request that relies on a group wait until the group is saved.

        Raises:
          Postponed: the group is being saved.
          RequestRefused: SERVICE_NOT_AVAILABLE if it could not be saved.
        """
        if group in self._unsaved:
            self.file.wait_for(f"group[{group}]", lambda: group not in self._unsaved)

    def update(self, groups: Iterable[SubscriptionGroupConfig]) -> list[SubscriptionGroupConfig]:
        """Create or change groups for an administrator.

        Args:
          groups: the new settings, but `attributes` are changes (`+key`, `-key`).
        Returns: the groups after the change.
        Raises: RequestRefused: a name, an attribute or a number is not allowed; none of the groups
          is changed then.
        Source: SubscriptionGroupManager.updateSubscriptionGroupConfigList.
        """
        table = self.subscription_group_table
        changed: dict[str, SubscriptionGroupConfig] = {}
        for group in groups:
            name = group.group_name
            reason = refuse_group(name) or out_of_range(group)
            if reason is not None:
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, reason)
            old = changed.get(name) or table.get(name)
            attributes = alter_attributes(
                {} if old is None else old.attributes,
                group.attributes,
                is_new=old is None,
                allowed=GROUP_ATTRIBUTES,
            )
            changed[name] = msgspec.structs.replace(group, attributes=attributes)
        count_max = self._config.groups_max
        if len(table) + sum(name not in table for name in changed) > count_max:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"no more than {count_max} groups are allowed (groupsMax)",
            )
        different = {name: group for name, group in changed.items() if group != table.get(name)}
        if different:
            logger.info("update groups: %(groups)s", {"groups": list(different.values())})
            table.update(different)
            self._changed()
        return list(changed.values())

    def delete(self, group: str) -> bool:
        """Delete a group.

        Returns: whether it existed.
        """
        is_forbidden = self.forbidden_table.pop(group, None) is not None
        if self.subscription_group_table.pop(group, None) is None:
            if is_forbidden:
                self._changed()
            return False
        logger.info("delete group: %(group)s", {"group": group})
        self._unsaved.discard(group)
        self._changed()
        return True

    # ---- what groups may not do --------------------------------------------------------

    def may_read(self, group: str, topic: str) -> bool:
        """Whether a group may pull from a topic, as far as `set_readable` says."""
        table = self.forbidden_table
        return not table or not max(table.get(group, {}).get(topic, 0), 0) & _READ_BIT

    def set_readable(self, group: str, topic: str, *, readable: bool) -> None:
        """Allow or forbid a group to pull from a topic. Neither needs to exist.

        RocketMQ's broker allows all topics of a group again at once, and does not save that.

        Raises: RequestRefused: INVALID_PARAMETER: nothing can have this name; SYSTEM_ERROR if there
          are FORBIDDEN_COUNT_MAX pairs.
        Source: SubscriptionGroupManager.updateForbidden of 5.5.0.
        """
        if self.may_read(group, topic) == readable:
            return
        topics = dict(self.forbidden_table.get(group, {}))
        bits = max(topics.pop(topic, 0), 0)
        bits = bits & ~_READ_BIT if readable else bits | _READ_BIT
        if bits:
            topics[topic] = bits
        if not readable:
            reason = refuse_group(group) or refuse_topic(topic)
            if reason is not None:
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, reason)
            if sum(map(len, self.forbidden_table.values())) >= FORBIDDEN_COUNT_MAX:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"no more than {FORBIDDEN_COUNT_MAX} pairs of group and topic can be forbidden",
                )
        if topics:
            self.forbidden_table[group] = topics
        else:
            del self.forbidden_table[group]
        logger.info(
            "group %(group)s may %(readable)s topic %(topic)s",
            {"group": group, "readable": "read" if readable else "no longer read", "topic": topic},
        )
        known = self.subscription_group_table.get(group)
        if known is not None:  # a new value: checks of pulls that rely on the old one are repeated
            self.subscription_group_table[group] = msgspec.structs.replace(known)
        self._changed()

    def _changed(self) -> None:
        self.data_version = next_version(self.data_version, self._clock.wall_ms())
        self.file.changed_by_client()

    def _text_to_save(self) -> Steps[bytes]:
        self._saving = set(self._unsaved)
        return self._encode_in_steps()

    def _on_saved(self, error: StoreIOError | None) -> None:
        if error is None:
            self._unsaved -= self._saving

    def encode(self) -> bytes:
        """The text of `subscriptionGroup.json`."""
        return at_once(self._encode_in_steps())

    def _encode_in_steps(self) -> Steps[bytes]:
        """Steps that encode `subscriptionGroup.json`; the content is that of this call."""
        head: dict[str, Json] = {
            "dataVersion": written(self.data_version, depth=1),
            "forbiddenTable": dict(self.forbidden_table),
        }
        return self._text_of(head, dict(self.subscription_group_table))

    def _text_of(
        self, head: dict[str, Json], groups: Mapping[str, SubscriptionGroupConfig]
    ) -> Steps[bytes]:
        table = yield from self._texts.write(groups)
        return pretty({**head, "subscriptionGroupTable": table})

    def decode(self, text: bytes) -> int:
        """Replace the table by `subscriptionGroup.json`; missing system groups are kept.

        Args:
          text: the file's text, as any version of RocketMQ wrote it.
        Returns: the number of groups in the file.
        Raises: ValueError: the text is not a table of groups; nothing is changed then.
        """
        try:
            wrapper = msgspec.convert(parse(text), SubscriptionGroupWrapper)
        except msgspec.ValidationError as error:
            raise ValueError(f"not a table of groups: {error}") from error
        table, version = wrapper.subscription_group_table, wrapper.data_version
        is_corrected = correct_groups(SUBSCRIPTION_GROUPS, table)
        wrapper.data_version = correct_version(SUBSCRIPTION_GROUPS, version, self.data_version)
        is_mended = self._replace(wrapper, SUBSCRIPTION_GROUPS)
        self.is_corrected = is_corrected or is_mended or wrapper.data_version is not version
        return len(wrapper.subscription_group_table)

    def take_over(self, master: SubscriptionGroupWrapper) -> bool:
        """On a slave: replace the table by its master's, and schedule a save; see `decode`.

        Args:
          master: all groups of the master.
        Returns: whether they differed.
        Source: SlaveSynchronize.syncSubscriptionGroupConfig.
        """
        if master.data_version == self.data_version:
            return False
        self._replace(master, MASTERS_TABLE)
        logger.info(
            "groups copied from the master: %(groups)d groups now",
            {"groups": len(self.subscription_group_table)},
        )
        self.file.changed()
        return True

    def _replace(self, wrapper: SubscriptionGroupWrapper, source: str) -> bool:
        """Replace the table; return whether one of the groups had to be corrected."""
        loaded, is_mended = wrapper.subscription_group_table, False
        for name, group in loaded.items():
            group.group_name = name
            loaded[name] = mended_group(group, source)
            is_mended = is_mended or loaded[name] is not group
        self.subscription_group_table.clear()
        self.subscription_group_table.update(loaded)
        for name in SYSTEM_GROUPS:
            if name not in loaded:
                self.subscription_group_table[name] = SubscriptionGroupConfig(group_name=name)
        self.forbidden_table = wrapper.forbidden_table
        self.data_version = wrapper.data_version
        return is_mended
