"""Collecting the facts of broker sets in controller mode: their controllers, and their epochs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import anyio
import msgspec

from ...client.errors import ClientError, reading_answer
from ...common.texts import one_line
from ...remoting.bodies.controller import BrokerReplicasInfo, EpochEntryCache, ReplicasInfo
from ...remoting.headers import decode
from ...remoting.headers.controller import (
    GetMetaDataResponseHeader,
    GetReplicaInfoRequestHeader,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..asking import Round
from .facts import BrokerFacts, EpochFacts, ReplicaFacts, SetFacts


class SetCollector:
    """Collects the facts of all sets in controller mode.

    Args:
      asked: the round of all requests.
      brokers: what brokers answered before.
    """

    def __init__(self, asked: Round, brokers: Iterable[BrokerFacts]) -> None:
        self._round = asked
        self._members = [
            each for each in brokers if each.config.get("enableControllerMode") == "true"
        ]
        self._epochs: dict[str, EpochFacts] = {}

    async def collect(self) -> tuple[SetFacts, ...]:
        """Ask the leader of each set's controllers, and each member; all at once."""
        names: dict[tuple[str, ...], set[str]] = {}
        for each in self._members:
            names.setdefault(_controllers(each.config), set()).add(each.key.name)
        found: list[SetFacts] = []
        async with anyio.create_task_group() as tasks:
            for member in self._members:
                tasks.start_soon(self._ask_epochs, member)
            for addresses, of_these in names.items():
                tasks.start_soon(self._ask_controllers, addresses, sorted(of_these), found)
        return tuple(
            msgspec.structs.replace(each, epochs=self._epochs)
            for each in sorted(found, key=lambda each: each.name)
        )

    async def _ask_epochs(self, member: BrokerFacts) -> None:
        header = GetReplicaInfoRequestHeader(broker_name=member.key.name)
        code = RequestCode.GET_BROKER_EPOCH_CACHE
        try:
            answer = await self._round.request(member.address, code, header)
            with reading_answer(member.address):
                cache = EpochEntryCache.from_body(answer.body)
        except ClientError:
            return  # what it refuses is not judged
        if cache.epoch_list:
            last = cache.epoch_list[-1]
            self._epochs[member.address] = EpochFacts(
                last.epoch, last.start_offset, cache.max_offset
            )

    async def _ask_controllers(
        self, addresses: tuple[str, ...], names: list[str], found: list[SetFacts]
    ) -> None:
        leaders: dict[str, str] = {}
        errors: dict[str, str] = {}
        async with anyio.create_task_group() as tasks:
            for address in addresses:
                tasks.start_soon(self._ask_leader, address, leaders, errors)
        leader = next(iter(leaders), "")
        sets: Mapping[str, ReplicasInfo] = {}
        if leader:
            try:
                sets = await self._sets(leader, names)
            except ClientError as error:
                errors[leader] = one_line(error)
        found += [
            _facts(name, addresses, leaders.get(leader, ""), errors, sets.get(name))
            for name in names
        ]

    async def _ask_leader(
        self, address: str, leaders: dict[str, str], errors: dict[str, str]
    ) -> None:
        """Note the address where a controller leads, and the one that it announces."""
        code = RequestCode.CONTROLLER_GET_METADATA_INFO
        try:
            answer = await self._round.request(address, code)
            with reading_answer(address):
                found = decode(GetMetaDataResponseHeader, answer.ext_fields)
        except ClientError as error:
            errors[address] = one_line(error)
            return
        if found.is_leader:
            leaders[address] = found.controller_leader_address or ""

    async def _sets(self, leader: str, names: list[str]) -> Mapping[str, ReplicasInfo]:
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        command = self._round.client.command(code, None, msgspec.json.encode(names))
        answer = await self._round.call(leader, command)
        if answer.code != ResponseCode.SUCCESS:
            return {}
        with reading_answer(leader):
            return BrokerReplicasInfo.from_body(answer.body).replicas_info_table


def _controllers(config: Mapping[str, str]) -> tuple[str, ...]:
    text = config.get("controllerAddr", "").replace("\\", "")
    return tuple(dict.fromkeys(filter(None, map(str.strip, text.split(";")))))


def _facts(
    name: str,
    controllers: tuple[str, ...],
    announced: str,
    errors: Mapping[str, str],
    replicas: ReplicasInfo | None,
) -> SetFacts:
    if replicas is None:
        return SetFacts(name, controllers, announced, dict(errors))
    members = (
        (True, replicas.in_sync_replicas),
        (False, replicas.not_in_sync_replicas),
    )
    return SetFacts(
        name,
        controllers,
        announced,
        dict(errors),
        replicas.master_broker_id,
        tuple(
            ReplicaFacts(each.broker_id, each.broker_address, each.alive, is_in_sync)
            for is_in_sync, brokers in members
            for each in sorted(brokers, key=lambda broker: broker.broker_id)
        ),
    )
