"""Administration of consumer groups: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200), its list form
(225), GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), DELETE_SUBSCRIPTIONGROUP (207),
GET_SUBSCRIPTIONGROUP_CONFIG (352), UPDATE_AND_GET_GROUP_FORBIDDEN (353).

Groups are not registered with name servers; only their retry topics are, when they first connect.

Java counterpart: AdminBrokerProcessor.updateAndCreateSubscriptionGroup, updateAndGetGroupForbidden
and the like of 5.3.3 and 5.5. Pure.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from itertools import islice

import trio

from ...common.histogram import Histogram
from ...common.steps import Steps, json_page, with_member
from ...disk.until_saved import until_saved
from ...remoting import fastjson
from ...remoting.bodies import (
    DataVersion,
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from ...remoting.channel import Answer, Channel, Deferred, Processor, answer_of
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
    decode,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..messages.admission import may_commit_offset, own_offsets
from ..messages.request import NO_BODY, read_body
from ..replication.slave import NO_CHANGE
from ..settings.settable_numbers import mend_group
from ..tables.config_text import page
from ..tables.consumer_offset_manager import ConsumerOffsetManager
from ..tables.subscription_group_manager import SubscriptionGroupManager
from .topic_admin import PAGE_BODY_SIZE_MAX, check_list, first_of_page, page_size

logger = logging.getLogger(__name__)


class GroupAdminProcessor:
    """Creates, changes, lists and deletes consumer groups.

    Args:
      groups, offsets: the broker's tables.
      on_deleted: called with the name of a deleted group.
      times_ms: counts how long it takes to save a change, milliseconds.
      is_slave: the groups are copies of the master's.
    """

    def __init__(
        self,
        *,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        on_deleted: Callable[[str], None],
        times_ms: Histogram,
        is_slave: bool = False,
    ) -> None:
        self._is_slave = is_slave
        self._on_deleted = on_deleted
        self._times_ms = times_ms
        self._groups = groups
        self._offsets = offsets
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._update_list,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._one,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self._forbidden,
        }

    def _saved(self, answer: RemotingCommand) -> Deferred:
        async def run() -> RemotingCommand:
            began_s = trio.current_time()
            await until_saved(self._groups.file)
            self._times_ms.add((trio.current_time() - began_s) * 1000)
            return answer

        return Deferred(run)

    def _update(self, request: RemotingCommand, channel: Channel) -> Answer:
        if request.body.strip() in NO_BODY:
            # As RocketMQ: mqadmin would show a failure where Apache's brokers show none.
            logger.warning(
                "%(peer)s sends request %(code)d without a group: nothing is changed",
                {"peer": channel.remote_address, "code": request.code},
            )
            return request.answer()
        group = read_body(
            request,
            SubscriptionGroupConfig.from_request,
            lambda body: mend_group(body, channel.remote_address),
        )
        logger.info(
            "%(peer)s creates or changes group %(group)r",
            {"peer": channel.remote_address, "group": group.group_name},
        )
        self._groups.update([group])
        return self._saved(request.answer())

    def _update_list(self, request: RemotingCommand, channel: Channel) -> Answer:

        def bound(body: SubscriptionGroupList) -> None:
            check_list(body.group_config_list)
            for group in body.group_config_list:
                mend_group(group, channel.remote_address)

        groups = read_body(request, SubscriptionGroupList.from_request, bound).group_config_list
        logger.info(
            "%(peer)s creates or changes %(groups)d groups",
            {"peer": channel.remote_address, "groups": len(groups)},
        )
        self._groups.update(groups)
        return self._saved(request.answer())

    def _all(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(GetAllSubscriptionGroupRequestHeader, request.ext_fields)
        table = self._groups.subscription_group_table
        version = self._groups.data_version
        total = len(table)
        paging = (header.data_version, header.group_seq, header.max_group_num)
        is_page = paging != (None, None, None)
        if is_page:
            table = page(
                table,
                begin=first_of_page(header.data_version, version, header.group_seq),
                count=page_size(header.max_group_num),
            )
        size_max = PAGE_BODY_SIZE_MAX if is_page else sys.maxsize
        return answer_of(self._answer_groups(request, table, total, version, size_max))

    def _answer_groups(
        self,
        request: RemotingCommand,
        table: Mapping[str, SubscriptionGroupConfig],
        total: int,
        version: DataVersion,
        size_max: int,
    ) -> Steps[RemotingCommand | Deferred]:
        forbidden = self._groups.forbidden_table
        groups, count = yield from json_page(table, fastjson.dumps, size_max)
        if size_max < sys.maxsize:
            named = set(islice(table, count))
            forbidden = {group: topics for group, topics in forbidden.items() if group in named}
        wrapper = SubscriptionGroupWrapper(forbidden_table=forbidden, data_version=version)
        body = with_member(wrapper.to_body(), b'"subscriptionGroupTable":{}', groups)
        return request.answer(ext_fields={"totalGroupNum": str(total)}, body=body)

    def _delete(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(DeleteSubscriptionGroupRequestHeader, request.ext_fields)
        logger.info(
            "%(peer)s deletes group %(group)r",
            {"peer": channel.remote_address, "group": header.group_name},
        )
        if not may_commit_offset(header.group_name):
            raise RequestRefused(ResponseCode.NO_PERMISSION, own_offsets(header.group_name))
        if header.clean_offset or header.remove_offset:
            self._offsets.remove_offset(header.group_name)
        self._groups.delete(header.group_name)
        self._on_deleted(header.group_name)
        return self._saved(request.answer())

    def _one(self, request: RemotingCommand, channel: Channel) -> Answer:
        """Return a group; one that its first pull would create is created.

        Source: AdminBrokerProcessor.getSubscriptionGroup.
        """
        name = decode(GetSubscriptionGroupConfigRequestHeader, request.ext_fields).group
        # Created, because Apache's proxy asks for the group of a new consumer before the consumer
        # receives, and lets none begin whose group is missing.
        group = self._groups.find(name, channel.remote_address)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker"
            )
        return request.answer(body=group.to_body())

    def _forbidden(self, request: RemotingCommand, channel: Channel) -> Answer:
        """Say whether a group may read a topic, after a change if one is asked for."""
        header = decode(UpdateGroupForbiddenRequestHeader, request.ext_fields)
        group, topic, readable = header.group, header.topic, header.readable
        if readable is not None:
            if self._is_slave:
                raise RequestRefused(*NO_CHANGE)
            logger.info(
                "%(peer)s sets whether group %(group)r may read topic %(topic)r: %(readable)s",
                {
                    "peer": channel.remote_address,
                    "group": group,
                    "topic": topic,
                    "readable": readable,
                },
            )
            self._groups.set_readable(group, topic, readable=readable)
        may_read = self._groups.may_read(group, topic)
        body = GroupForbidden(topic=topic, group=group, readable=may_read).to_body()
        answer = request.answer(remark="", body=body)
        return answer if readable is None else self._saved(answer)
