"""The controller's answers: a request and what is known of its set to an answer and the set after.

Pure: the server (`leader.py`) stores the set by compare-and-swap before it sends the answer or
notifies anyone. Requests that change nothing are in `reading.py`.

Bodies have quoted keys, which all of Java's readers take; Apache's controller writes bare ones, and
mqadmin 5.5.0 fails on those of its answer to electMaster.

Source: ControllerRequestProcessor and ReplicasInfoManager of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from ..remoting.bodies import Body
from ..remoting.bodies.controller import ElectMasterResponseBody, SyncStateSet
from ..remoting.bodies.route import BrokerMemberGroup
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemoteProtocolError, RequestRefused
from ..remoting.headers import Header, decode, encode_header
from ..remoting.headers import controller as headers
from ..remoting.names import check_server_name, is_address
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from . import rules
from .broker_set import BrokerSet
from .rules import Alive, Outcome

SETS_MAX: Final = 4_096
"""Sets of brokers; as many as a name server has brokers."""

MEMBERS_MAX: Final = 1_000
"""Members of a set. Each costs the master a connection and a copy of the log: sets have two or
three. More than that are ids of brokers that were replaced, which an administrator can clean."""

CHECK_CODE_SIZE_MAX: Final = 512
"""Characters of a registerCheckCode, "host:port;ms"."""

_ElectedCodes: Final = (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)

_BodyT = TypeVar("_BodyT", bound=Body)


class Situation(NamedTuple):
    """What is known of a set when a request about it is decided.

    Attributes:
      before: as it is stored; None: there is no set of the name.
      alive: its living members.
      is_unclean: whether one that is not in sync may be elected (enableElectUncleanMaster).
      has_room: whether another set may be stored.
    """

    before: BrokerSet | None
    alive: Alive
    is_unclean: bool = False
    has_room: bool = True

    @property
    def has_living_master(self) -> bool:
        """Whether the set has a master that is alive."""
        return self.before is not None and self.before.master_id in self.alive


class Reply(NamedTuple):
    """The answer to a request.

    Attributes:
      header: None: it has none.
    """

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    header: Header | None = None
    body: bytes = b""

    def to(self, request: RemotingCommand) -> RemotingCommand:
        """The command that answers a request."""
        fields = {} if self.header is None else encode_header(self.header)
        return request.answer(self.code, self.remark, fields, self.body)


class Decision(NamedTuple):
    """What follows from a request.

    Attributes:
      after: the set; the same object as before if nothing changes.
      is_election: a master was elected: once that is stored, the living members are notified.
    """

    reply: Reply
    after: BrokerSet | None
    is_election: bool = False


class Change(NamedTuple):
    """A request that may change a set.

    Attributes:
      name: the broker name of the set.
      decide: pure; it may be called again with a newer situation.
    """

    name: str
    decide: Callable[[Situation], Decision]


# Requests that may change a set


def alter_sync_state_set(fields: Mapping[str, str], body: bytes) -> Change:
    """CONTROLLER_ALTER_SYNC_STATE_SET 1001: a master replaces the in-sync set."""
    header = decode(headers.AlterSyncStateSetRequestHeader, fields)
    wanted = _body(SyncStateSet, body)
    refused = headers.AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=0)

    def decide(now: Situation) -> Decision:
        if len(wanted.sync_state_set) > MEMBERS_MAX:
            remark = f"{len(wanted.sync_state_set)} ids; a set has at most {MEMBERS_MAX}"
            code = ResponseCode.CONTROLLER_INVALID_REPLICAS
            return Decision(Reply(code, remark, refused), now.before)
        outcome = rules.alter_in_sync(
            now.before,
            master_id=header.master_broker_id,
            master_epoch=header.master_epoch,
            wanted=frozenset(wanted.sync_state_set),
            known_epoch=wanted.sync_state_set_epoch,
            alive=now.alive.keys(),
        )
        after = outcome.after
        if outcome.code != ResponseCode.SUCCESS or after is None:
            return Decision(Reply(outcome.code, outcome.remark, refused), after)
        accepted = headers.AlterSyncStateSetResponseHeader(
            new_sync_state_set_epoch=after.in_sync_epoch
        )
        return Decision(Reply(header=accepted, body=in_sync_body(after)), after)

    return Change(header.broker_name, decide)


def elect_master(fields: Mapping[str, str], body: bytes) -> Change:
    """CONTROLLER_ELECT_MASTER 1002: a broker or an administrator asks for a master."""
    header = decode(headers.ElectMasterRequestHeader, fields)
    asking = None if header.broker_id < 0 else header.broker_id

    def decide(now: Situation) -> Decision:
        outcome = rules.elect(
            now.before,
            alive=now.alive,
            asking_id=asking,
            designated_id=asking if header.designate_elect else None,
            is_unclean=now.is_unclean,
        )
        return _elected(outcome)

    return Change(header.broker_name, decide)


def _elected(outcome: Outcome) -> Decision:
    after = outcome.after
    if outcome.code not in _ElectedCodes or after is None:
        return Decision(Reply(outcome.code, outcome.remark), after)
    header = headers.ElectMasterResponseHeader(
        master_broker_id=after.master_id,
        master_address=after.master_address,
        master_epoch=after.master_epoch,
        sync_state_set_epoch=after.in_sync_epoch,
    )
    in_sync = set(after.in_sync)
    if outcome.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
        remark = (
            f"The old master {after.master_id} is still alive, not need to elect new master for "
            f"broker {after.broker_name}"
        )
        body = ElectMasterResponseBody(sync_state_set=in_sync)
        return Decision(Reply(outcome.code, remark, header, body.to_body()), after)
    group = BrokerMemberGroup(
        cluster=after.cluster_name,
        broker_name=after.broker_name,
        broker_addrs={each: replica.address for each, replica in after.replicas.items()},
    )
    body = ElectMasterResponseBody(
        broker_member_group=group,
        sync_state_set=in_sync,
        # Once more, at the place where mqadmin reads them.
        cluster=group.cluster,
        broker_name=group.broker_name,
        broker_addrs=group.broker_addrs,
    )
    return Decision(Reply(header=header, body=body.to_body()), after, is_election=True)


def register_broker(fields: Mapping[str, str], body: bytes) -> Change:
    """CONTROLLER_REGISTER_BROKER 1003: a broker with an id says where it is."""
    header = decode(headers.RegisterBrokerToControllerRequestHeader, fields)
    if not is_address(header.broker_address):
        remark = f"brokerAddress {header.broker_address[:80]!r} is not host:port"
        raise RequestRefused(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)

    def decide(now: Situation) -> Decision:
        outcome = rules.register(
            now.before, broker_id=header.broker_id, address=header.broker_address
        )
        after = outcome.after
        answer = headers.RegisterBrokerToControllerResponseHeader(
            cluster_name=header.cluster_name, broker_name=header.broker_name
        )
        if outcome.code != ResponseCode.SUCCESS or after is None:
            return Decision(Reply(outcome.code, outcome.remark, answer), after)
        if now.has_living_master:
            answer = headers.RegisterBrokerToControllerResponseHeader(
                cluster_name=header.cluster_name,
                broker_name=header.broker_name,
                master_broker_id=after.master_id,
                master_address=after.master_address,
                master_epoch=after.master_epoch,
                sync_state_set_epoch=after.in_sync_epoch,
            )
        return Decision(Reply(header=answer, body=in_sync_body(after)), after)

    return Change(header.broker_name, decide)


def apply_broker_id(fields: Mapping[str, str], body: bytes) -> Change:
    """CONTROLLER_APPLY_BROKER_ID 1013: a new broker takes an id."""
    header = decode(headers.ApplyBrokerIdRequestHeader, fields)
    check_server_name("cluster name", header.cluster_name)
    check_server_name("broker name", header.broker_name)
    if len(header.register_check_code) > CHECK_CODE_SIZE_MAX:
        remark = f"registerCheckCode is longer than {CHECK_CODE_SIZE_MAX} characters"
        raise RequestRefused(ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark)
    answer = headers.ApplyBrokerIdResponseHeader(
        cluster_name=header.cluster_name, broker_name=header.broker_name
    )

    def decide(now: Situation) -> Decision:
        before = now.before
        too_many = ""
        if before is None:
            if not now.has_room:
                too_many = f"there are {SETS_MAX} broker sets, as many as are allowed"
        elif (
            len(before.replicas) >= MEMBERS_MAX and header.applied_broker_id not in before.replicas
        ):
            too_many = f"the set has {MEMBERS_MAX} members, as many as are allowed"
        if too_many:
            code = ResponseCode.CONTROLLER_BROKER_ID_INVALID
            return Decision(Reply(code, too_many, answer), before)
        outcome = rules.apply_broker_id(
            before,
            cluster_name=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.applied_broker_id,
            check_code=header.register_check_code,
        )
        return Decision(Reply(outcome.code, outcome.remark or None, answer), outcome.after)

    return Change(header.broker_name, decide)


def clean_broker_data(fields: Mapping[str, str], body: bytes) -> Change:
    """CLEAN_BROKER_DATA 1011: an administrator forgets members of a set, or all of it."""
    header = decode(headers.CleanBrokerDataRequestHeader, fields)
    ids = _ids_of(header.broker_controller_ids_to_clean or "")

    def decide(now: Situation) -> Decision:
        outcome = rules.clean(
            now.before,
            ids=ids,
            alive=now.alive.keys(),
            with_living=header.is_clean_living_broker,
        )
        return Decision(Reply(outcome.code, outcome.remark or None), outcome.after)

    return Change(header.broker_name, decide)


def _ids_of(text: str) -> frozenset[int]:
    """The ids of "1;2".

    Raises: RequestRefused: one is none, or there are too many.
    """
    parts = [part for part in (each.strip() for each in text.split(";")) if part]
    # Before `int`, which takes long for thousands of digits.
    is_number = all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts)
    if not is_number or len(parts) > MEMBERS_MAX:
        remark = (
            f"brokerControllerIdsToClean: {text[:80]!r} is not a list of at most {MEMBERS_MAX} "
            "ids, such as 1;2"
        )
        raise RequestRefused(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark)
    return frozenset(map(int, parts))


CHANGES: Final[Mapping[int, Callable[[Mapping[str, str], bytes], Change]]] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: alter_sync_state_set,
    RequestCode.CONTROLLER_ELECT_MASTER: elect_master,
    RequestCode.CONTROLLER_REGISTER_BROKER: register_broker,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: apply_broker_id,
    RequestCode.CLEAN_BROKER_DATA: clean_broker_data,
}
"""Requests that may change a set. Each function reads header and body, and raises RequestRefused if
they are not valid."""


# Elections that no one asks for


def needs_election(now: Situation) -> bool:
    """Whether the set has lost its master. It is a condition: an election that failed is tried
    again for as long as it holds."""
    return now.before is not None and rules.needs_master(now.before, now.alive.keys())


def elect_for_lost(now: Situation) -> Decision:
    """Elect a master for a set that has lost its own; if there is none to be had, it has none."""
    if not needs_election(now):
        return Decision(Reply(), now.before)
    return _elected(rules.elect(now.before, alive=now.alive, is_unclean=now.is_unclean))


def role_change(elected: BrokerSet) -> RemotingCommand:
    """NOTIFY_BROKER_ROLE_CHANGED 1008, for the living members of a set."""
    header = headers.NotifyBrokerRoleChangedRequestHeader(
        master_address=elected.master_address or None,
        master_broker_id=elected.master_id,
        master_epoch=elected.master_epoch,
        sync_state_set_epoch=elected.in_sync_epoch,
    )
    return RemotingCommand(
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED, encode_header(header), in_sync_body(elected)
    )


def in_sync_body(each: BrokerSet) -> bytes:
    """The in-sync set as the body of an answer or a notification."""
    body = SyncStateSet(sync_state_set=set(each.in_sync), sync_state_set_epoch=each.in_sync_epoch)
    return body.to_body()


def _body(body_class: type[_BodyT], body: bytes) -> _BodyT:
    try:
        return body_class.from_request(body)
    except RemoteProtocolError as error:
        remark = f"Failed to decode {body_class.__name__}: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark) from error
