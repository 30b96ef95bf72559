"""SetApi: the requests of one broker to the controller that leads, and their answers as views.

Source: BrokerOuterAPI of RocketMQ 5.5.0, and the controller's answers as they are recorded.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...common.clock import Clock
from ...remoting.bodies import ElectMasterResponseBody, SyncStateSet
from ...remoting.bodies.controller import REPLICA_ID_MAX
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingError
from ...remoting.headers import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
    decode,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from .controllers import Controllers
from .identity import Application
from .roles import SetView

NOT_KNOWN: Final = (
    ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
)


class RefusedError(RemotingError):
    """The controller has refused a request.

    Attributes:
      code: a `ResponseCode`, or a number that is none.
    """

    def __init__(self, answer: RemotingCommand) -> None:
        super().__init__(
            f"the controller refuses: {answer.remark or 'without a reason'} (code {answer.code})"
        )
        self.code = answer.code

    @property
    def is_not_known(self) -> bool:
        """Whether the controller does not know the broker, or the set."""
        return self.code in NOT_KNOWN


class InSync(NamedTuple):
    """An in-sync set: its members, and the number of changes so far."""

    members: frozenset[int]
    epoch: int


class SetApi:
    """The requests of one broker about its set.

    Each raises RemotingError when no controller leads or answers, and its RefusedError when the
    controller refuses.

    Args:
      clock: its wall time goes into the requests, as RocketMQ's.
    """

    def __init__(
        self, controllers: Controllers, cluster_name: str, broker_name: str, clock: Clock
    ) -> None:
        self._controllers = controllers
        self._cluster_name = cluster_name
        self._broker_name = broker_name
        self._clock = clock

    async def next_id(self) -> int:
        """The id to apply for."""
        header = GetNextBrokerIdRequestHeader(
            cluster_name=self._cluster_name, broker_name=self._broker_name
        )
        answer = self._checked(
            await self._controllers.call(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
        )
        found = decode(GetNextBrokerIdResponseHeader, answer.ext_fields).next_broker_id
        if found is None or not 1 <= found <= REPLICA_ID_MAX:
            raise RemotingError(f"the controller offers the id {found}, which is none")
        return found

    async def apply(self, application: Application) -> None:
        """Apply for an id; a repetition of the same application succeeds, too."""
        header = ApplyBrokerIdRequestHeader(
            cluster_name=self._cluster_name,
            broker_name=self._broker_name,
            applied_broker_id=application.controller_id,
            register_check_code=application.check_code,
        )
        self._checked(await self._controllers.call(RequestCode.CONTROLLER_APPLY_BROKER_ID, header))

    async def register(self, controller_id: int, address: str) -> SetView | None:
        """Say where the broker is; returns the set if it has a master that is alive."""
        header = RegisterBrokerToControllerRequestHeader(
            cluster_name=self._cluster_name,
            broker_name=self._broker_name,
            broker_id=controller_id,
            broker_address=address,
            invoke_time=self._clock.wall_ms(),
        )
        answer = self._checked(
            await self._controllers.call(RequestCode.CONTROLLER_REGISTER_BROKER, header)
        )
        found = decode(RegisterBrokerToControllerResponseHeader, answer.ext_fields)
        if found.master_broker_id is None:
            return None
        return _view(found.master_broker_id, found.master_address, found.master_epoch, answer.body)

    async def replica_info(self) -> SetView:
        """The set as it is."""
        header = GetReplicaInfoRequestHeader(broker_name=self._broker_name)
        answer = self._checked(
            await self._controllers.call(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)
        )
        found = decode(GetReplicaInfoResponseHeader, answer.ext_fields)
        return _view(found.master_broker_id, found.master_address, found.master_epoch, answer.body)

    async def elect(self, controller_id: int) -> SetView:
        """Ask for an election; returns the set, whose master may have stayed."""
        header = ElectMasterRequestHeader(
            cluster_name=self._cluster_name,
            broker_name=self._broker_name,
            broker_id=controller_id,
            invoke_time=self._clock.wall_ms(),
        )
        answer = await self._controllers.call(RequestCode.CONTROLLER_ELECT_MASTER, header)
        if answer.code != ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
            self._checked(answer)
        found = decode(ElectMasterResponseHeader, answer.ext_fields)
        body = ElectMasterResponseBody.from_body(answer.body) if answer.body else None
        return SetView(
            found.master_broker_id,
            found.master_address or "",
            found.master_epoch or 0,
            frozenset() if body is None else frozenset(body.sync_state_set),
            found.sync_state_set_epoch or 0,
        )

    async def alter(self, master_id: int, master_epoch: int, wanted: InSync) -> InSync:
        """Replace the in-sync set of `wanted.epoch`; returns the new one."""
        header = AlterSyncStateSetRequestHeader(
            broker_name=self._broker_name,
            master_broker_id=master_id,
            master_epoch=master_epoch,
            invoke_time=self._clock.wall_ms(),
        )
        body = SyncStateSet(sync_state_set=set(wanted.members), sync_state_set_epoch=wanted.epoch)
        answer = self._checked(
            await self._controllers.call(
                RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body.to_body()
            )
        )
        return _in_sync(answer.body)

    @staticmethod
    def _checked(answer: RemotingCommand) -> RemotingCommand:
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(answer)
        return answer


def _in_sync(body: bytes) -> InSync:
    if not body:
        return InSync(frozenset(), 0)
    found = SyncStateSet.from_body(body)
    return InSync(frozenset(found.sync_state_set), found.sync_state_set_epoch)


def _view(master_id: int | None, address: str | None, epoch: int | None, body: bytes) -> SetView:
    return SetView(master_id, address or "", epoch or 0, *_in_sync(body))
