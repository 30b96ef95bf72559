"""Request processors of the controller: 904, 1001 to 1006, 1009 to 1013.

Every code that Apache's controller serves is served here. 1014 to 1018 are for entries of JRaft's
log; on the wire they are refused with code 3, as there.

Java counterpart: RocketMQ 5.5.0 controller/processor/ControllerRequestProcessor.java.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from ..auth.model import parse_address
from ..remoting import fastjson
from ..remoting.channel import Channel, Deferred, Processor
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemoteProtocolError, RequestRefused
from ..remoting.headers import BrokerHeartbeatRequestHeader, decode, encode_header
from ..remoting.headers import controller as headers
from ..remoting.hosts import host_of
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import NOT_SET, ResponseCode
from . import reading, settings
from .config import ControllerConfig
from .leader import Leader
from .live_table import TIMEOUT_S, Heartbeat, Member
from .rules import Standing
from .state_machine import CHANGES, SETS_MAX, Change, Reply
from .state_store import Candidate


def is_own_election(request: RemotingCommand, _channel: Channel) -> bool:
    """Whether a CONTROLLER_ELECT_MASTER is a broker's, which needs a master, whichever it is.

    Raises: RequestRefused: the header is not valid.
    """
    return not decode(headers.ElectMasterRequestHeader, request.ext_fields).designate_elect


PRIORITY: Final = 2**31 - 1
"""Of a broker that states no electionPriority. Source: BrokerConfig.brokerElectionPriority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerServices:
    """The state of a controller, and the callbacks into its shell.

    Attributes:
      config: read at every request: UPDATE_CONTROLLER_CONFIG changes it in place.
      leader: this controller's leadership; None: it does not lead.
      known_leader: the controller that leads, as far as is known; None: none does.
      change_config: changes and saves settings; see `ConfigChanges.change`.
    """

    config: ControllerConfig
    leader: Callable[[], Leader | None]
    known_leader: Callable[[], Candidate | None]
    change_config: Callable[[bytes, str], Awaitable[Mapping[str, str]]]


class ControllerProcessors:
    """Serves a controller's requests."""

    def __init__(self, services: ControllerServices) -> None:
        self._services = services
        self._config = services.config
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self.replica_info,
            RequestCode.CONTROLLER_GET_METADATA_INFO: self.metadata,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self.sync_state_data,
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self.next_broker_id,
            RequestCode.UPDATE_CONTROLLER_CONFIG: self.update_config,
            RequestCode.GET_CONTROLLER_CONFIG: self.show_config,
            **{RequestCode(code): partial(self._change, read) for code, read in CHANGES.items()},
        }

    def _leader(self) -> Leader:
        """Raises: RequestRefused: CONTROLLER_NOT_LEADER."""
        leader = self._services.leader()
        if leader is None or not leader.is_leading:
            remark = "The controller is not in leader state"
            raise RequestRefused(ResponseCode.CONTROLLER_NOT_LEADER, remark)
        return leader

    def _change(
        self,
        read: Callable[[Mapping[str, str], bytes], Change],
        request: RemotingCommand,
        _channel: Channel,
    ) -> Deferred:
        """Requests that may change a set: 1001, 1002, 1003, 1011, 1013."""
        leader = self._leader()
        change = read(request.ext_fields, request.body)

        async def run() -> RemotingCommand:
            return (await leader.change(change)).to(request)

        return Deferred(run)

    def heartbeat(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """BROKER_HEARTBEAT 904: answered, so that a master knows who hears it."""
        leader = self._leader()
        header = decode(BrokerHeartbeatRequestHeader, request.ext_fields)
        if header.broker_id is None:
            code = ResponseCode.CONTROLLER_INVALID_REQUEST
            return request.answer(code, "Heart beat with empty brokerId")
        member = Member(header.cluster_name, header.broker_name, header.broker_id)
        if leader.heartbeat(member, _heartbeat_of(header, channel)):
            return request.answer(remark="Heart beat success")
        code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        return request.answer(code, "the broker is not registered")

    def replica_info(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """CONTROLLER_GET_REPLICA_INFO 1004."""
        leader = self._leader()
        header = decode(headers.GetReplicaInfoRequestHeader, request.ext_fields)
        return reading.replica_info(leader.set_of(header.broker_name)).to(request)

    def next_broker_id(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """CONTROLLER_GET_NEXT_BROKER_ID 1012."""
        leader = self._leader()
        header = decode(headers.GetNextBrokerIdRequestHeader, request.ext_fields)
        before = leader.set_of(header.broker_name)
        return reading.next_broker_id(header, before).to(request)

    def sync_state_data(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """CONTROLLER_GET_SYNC_STATE_DATA 1006: the sets of a list of names; others are left out."""
        leader = self._leader()
        if not request.body:
            return Reply(ResponseCode.SYSTEM_ERROR, NOT_SET).to(request)
        found = [leader.set_of(name) for name in _names_of(request.body)]
        sets = [(each, leader.alive(each)) for each in found if each is not None]
        return reading.sync_state_data(sets).to(request)

    def metadata(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """CONTROLLER_GET_METADATA_INFO 1005: who leads; every controller answers."""
        leader = self._services.leader()
        is_leader = leader is not None and leader.is_leading
        peers = self._config.peers
        known = self._services.known_leader()
        address = "" if known is None else known.address
        if is_leader:
            address = _reachable(address, channel)
        if not peers and is_leader and known is not None:
            peers_text = f"{known.name}:{address};"
        else:
            peers_text = "".join(f"{peer.name}:{peer.address};" for peer in peers)
        header = headers.GetMetaDataResponseHeader(
            group=self._config.controller_d_leger_group,
            controller_leader_id=None if known is None else known.name,
            controller_leader_address=address or None,
            is_leader=is_leader,
            peers=peers_text,
        )
        return request.answer(ext_fields=encode_header(header))

    def update_config(self, request: RemotingCommand, channel: Channel) -> Deferred:
        """UPDATE_CONTROLLER_CONFIG 1009: properties text; see `ConfigChanges.change`."""

        async def run() -> RemotingCommand:
            if request.body:
                await self._services.change_config(request.body, channel.remote_address)
            return request.answer()

        return Deferred(run)

    def show_config(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """GET_CONTROLLER_CONFIG 1010: the keys that may be shown, as properties text."""
        return request.answer(body=settings.show(self._config))


def _heartbeat_of(header: BrokerHeartbeatRequestHeader, channel: Channel) -> Heartbeat:
    timeout_ms, priority = header.heartbeat_timeout_mills, header.election_priority
    return Heartbeat(
        standing=Standing(
            epoch=-1 if header.epoch is None else header.epoch,
            max_offset=header.max_offset or 0,
            priority=PRIORITY if priority is None else priority,
        ),
        confirm_offset=header.confirm_offset or 0,
        timeout_s=TIMEOUT_S if timeout_ms is None else timeout_ms / 1_000,
        connection=channel,
    )


def _names_of(body: bytes) -> list[str]:
    """The broker names of a request's body.

    Raises: RequestRefused: SYSTEM_ERROR: it is no list of names, or too long.
    """
    try:
        fastjson.check_size(body)
        names = msgspec.json.decode(body, type=list[str])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RemoteProtocolError) as error:
        remark = f"Failed to decode a list of broker names: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark) from error
    if len(names) > SETS_MAX:
        remark = f"{len(names)} broker names; at most {SETS_MAX} are answered at a time"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
    return list(dict.fromkeys(names))


def _reachable(address: str, channel: Channel) -> str:
    """The leader's address for a peer: never a loopback one for a peer of another machine."""
    host, peer = parse_address(host_of(address)), parse_address(host_of(channel.remote_address))
    is_loopback = host_of(address) == "localhost" or (host is not None and host.is_loopback)
    is_far = peer is not None and not peer.is_loopback
    # Where the peer has reached this controller, it will again.
    return channel.local_address if not address or (is_loopback and is_far) else address
