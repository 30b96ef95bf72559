"""Requests about the accounts of ACL 1.0: 50 to 54. A broker without aclEnable does not serve them.

Java counterpart: AdminBrokerProcessor.updateAndCreateAccessConfig and its neighbours of 4.9.7.
Unlike there, any fault of a change is answered, and nothing is changed then.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from ...auth.plain_acl import HIDDEN, PlainAclError
from ...auth.plain_acl_files import PlainAclFiles
from ...common.config import ConfigError
from ...remoting import fastjson
from ...remoting.bodies import GetBrokerClusterAclConfigResponseBody, PlainAccessConfig
from ...remoting.channel import Answer, Channel, Deferred, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
    decode,
    encode_header,
)
from ...remoting.request_codes import RequestCode
from ..settings.broker_address import BrokerAddress
from ..settings.config import BrokerConfig

logger = logging.getLogger(__name__)

UPDATE_AND_CREATE_ACL_CONFIG_FAILED: Final = 209
DELETE_ACL_CONFIG_FAILED: Final = 210
UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED: Final = 211
"""Response codes of 4.x, whose numbers 5.x has given to others. Source: ResponseCode of 4.9.7."""

_ADDRESS: Final = re.compile(r"(?:[^,{]|\{[^}]*\}?)+")
"""One address of a list; commas in braces do not end it, as in `10.0.0.{1,2}`."""


class PlainAclProcessor:
    """Shows and changes the accounts.

    Args:
      is_administrator: whether a request is signed by an administrator's account.
    """

    def __init__(
        self,
        config: BrokerConfig,
        address: BrokerAddress,
        files: PlainAclFiles,
        is_administrator: Callable[[RemotingCommand], bool],
    ) -> None:
        self._config, self._address = config, address
        self._files = files
        self._is_administrator = is_administrator
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self._update,
            RequestCode.DELETE_ACL_CONFIG: self._delete,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self._version,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self._set_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self._show,
        }

    def _update(self, request: RemotingCommand, channel: Channel) -> Answer:
        """UPDATE_AND_CREATE_ACL_CONFIG 50; the answer comes when the account is saved and in use.

        Values that the request does not have stay as they are, but `admin`, which becomes false.
        """
        header = decode(CreateAccessConfigRequestHeader, request.ext_fields)
        config = PlainAccessConfig(
            access_key=header.access_key,
            secret_key=header.secret_key,
            white_remote_address=header.white_remote_address,
            admin=bool(header.admin),
            default_topic_perm=header.default_topic_perm,
            default_group_perm=header.default_group_perm,
            topic_perms=_split(header.topic_perms),
            group_perms=_split(header.group_perms),
        )

        async def change() -> str:
            await self._files.update_account(config)
            return ""

        what = f"the account {header.access_key}"
        return self._changed(request, channel, what, change, UPDATE_AND_CREATE_ACL_CONFIG_FAILED)

    def _delete(self, request: RemotingCommand, channel: Channel) -> Answer:
        """DELETE_ACL_CONFIG 51."""
        key = decode(DeleteAccessConfigRequestHeader, request.ext_fields).access_key

        async def change() -> str:
            if key and await self._files.delete_account(key):
                return ""
            shown = "null" if key is None else key
            return f"The accesskey[{shown}] corresponding to accessConfig has been deleted failed."

        what = f"the removal of the account {key}"
        return self._changed(request, channel, what, change, DELETE_ACL_CONFIG_FAILED)

    def _set_white_addresses(self, request: RemotingCommand, channel: Channel) -> Answer:
        """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG 53, of a file that has accounts already."""
        header = decode(UpdateGlobalWhiteAddrsConfigRequestHeader, request.ext_fields)
        text, path = header.global_white_addrs, header.acl_file_full_path or ""

        async def change() -> str:
            addresses = [] if text is None else _ADDRESS.findall(text)
            if text is not None and await self._files.set_white_addresses(addresses, path):
                return ""
            shown = "null" if text is None else text
            return f"The globalWhiteAddresses[{shown}] has been updated failed."

        what = f"the global white addresses {text}"
        code = UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        return self._changed(request, channel, what, change, code)

    def _changed(
        self,
        request: RemotingCommand,
        channel: Channel,
        what: str,
        change: Callable[[], Awaitable[str]],
        failed: int,
    ) -> Deferred:
        """Answer when a change is made.

        Raises: RequestRefused: in the task, with the reason why it is not.
        """

        async def run() -> RemotingCommand:
            try:
                reason = await change()
            except (PlainAclError, ConfigError) as error:
                reason = str(error)
            if reason:
                raise RequestRefused(failed, reason)
            logger.info(
                "%(peer)s changed access control: %(what)s is saved and in use",
                {"peer": channel.remote_address, "what": what},
            )
            return request.answer()

        return Deferred(run)

    def _version(self, request: RemotingCommand, _: Channel) -> Answer:
        """GET_BROKER_CLUSTER_ACL_INFO 52: the versions of the files."""
        files = self._files
        versions = {file.path: files.version_of(file) for file in files.acl.files}
        main = versions.get(files.main_path) or {"counter": 0, "timestamp": files.loaded_ms}
        header = GetBrokerAclConfigResponseHeader(
            version=fastjson.dumps(main).decode(),
            all_acl_file_version=fastjson.dumps(versions).decode(),
            broker_name=self._config.broker_name,
            broker_addr=self._address.broker_addr,
            cluster_name=self._config.broker_cluster_name,
        )
        return request.answer(ext_fields=encode_header(header))

    def _show(self, request: RemotingCommand, _: Channel) -> Answer:
        """GET_BROKER_CLUSTER_ACL_CONFIG 54: all accounts."""
        acl = self._files.acl
        configs = acl.configs
        # A request from a white address has no signature, so it gets no secrets.
        if not self._is_administrator(request):
            configs = [msgspec.structs.replace(each, secret_key=HIDDEN) for each in configs]
        addresses = [each.text for each in acl.white_addresses]
        body = GetBrokerClusterAclConfigResponseBody(addresses, configs)
        return request.answer(body=body.to_body())


def _split(text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")
