"""Controllers of broker sets: who leads, which brokers are in sync, electing a master.

Java counterpart: getControllerMetaData, getSyncStateSet, electMaster, cleanBrokerMetadata,
getControllerConfig, updateControllerConfig and getBrokerEpoch of mqadmin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from ...remoting.bodies.controller import BrokerReplicasInfo, EpochEntryCache, ReplicasInfo
from ...remoting.codec import RemotingCommand
from ...remoting.headers.base import Header, decode
from ...remoting.headers.controller import (
    CleanBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetReplicaInfoRequestHeader,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..connection.client import reading_answer
from ..connection.waiting import Window
from ..errors import ClientError, ConfigurationError, ServerError
from .asking import Answers, Brokers, NotFoundError, ask_all, each_of, first_of, label
from .brokers import properties_body, settings_of
from .results import ControllerInfo, ElectedMaster

CONTROLLER_KEY: Final = "controllerAddr"
"""Key of broker.conf: the controllers, `host:port;host:port`."""
LEADER_SHARE: Final = 0.5
"""How much of a verb's time may go into the search for the leader while a controller is silent."""

LAST_S: Final = 0.001
"""Seconds of a request that begins when the time is over: it fails as one that is not answered."""


class ControllerVerbs:
    """The part of `Admin` about the controllers of controller mode.

    `controllers` are addresses, `host:port`; None: those that the cluster's brokers have in their
    settings. The state of broker sets is asked of the leader of the controllers, wherever it is.
    All that one verb asks happens within the client's `timeout_s`.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._client = brokers.client

    async def controllers(self, broker_name: str | None = None) -> tuple[str, ...]:
        """The controllers that brokers have in their settings, `host:port` each.

        The first broker in controller mode that answers counts.

        Args:
          broker_name: only brokers of this name are asked; None: all.

        Raises: NotFoundError: no broker of those that answer is in controller mode. BrokersError:
          none answers; ServerError or ConnectError: the only one.
        """
        return await self._controllers(broker_name, self._window())

    async def controller_metadata(
        self, controllers: Sequence[str] | None = None
    ) -> dict[str, ControllerInfo]:
        """What each controller says of the group of controllers, by its address.

        Raises: BrokersError: some failed, and `partial` has what the others say; ServerError or
          ConnectError: the only one. As `controllers`.
        """
        window = self._window()
        addresses = await self._given(controllers, None, window)
        answers = await self._metadata(addresses, window)
        answers.check("the group of controllers", answers.values, "controllers")
        return answers.values

    async def in_sync_sets(
        self,
        broker_names: Collection[str] | None = None,
        *,
        controllers: Sequence[str] | None = None,
    ) -> dict[str, ReplicasInfo]:
        """The broker sets as the leader of the controllers knows them, by broker name.

        A set that it does not know is left out.

        Args:
          broker_names: None: of all brokers that the name servers know.

        Raises: NotFoundError: no controller leads. BrokersError: no controller answers.
          ServerError; ConnectError; as `controllers`.
        """
        window = self._window()
        if broker_names is None:
            broker_names = [broker.name for broker in await self._brokers.find()]
        addresses = await self._given(controllers, None, window)
        body = msgspec.json.encode(sorted(set(broker_names)))
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        address, answer = await self._ask_leader(addresses, window, code, None, body)
        with reading_answer(address):
            return BrokerReplicasInfo.from_body(answer.body).replicas_info_table

    async def elect_master(
        self,
        broker_name: str,
        controller_id: int,
        *,
        cluster: str | None = None,
        controllers: Sequence[str] | None = None,
    ) -> ElectedMaster:
        """Make one broker of a set its master: it must be alive and in sync.

        A master that is elected again stays what it is, with its epoch.

        Args:
          broker_name: of the set.
          controller_id: the broker's number in its set, from 1 on.
          cluster: of the set; None: as the name servers have it.

        Raises: ServerError: it was not elected (CONTROLLER_ELECT_MASTER_FAILED), or the set is not
          known. ConfigurationError: the id is below 1. NotFoundError: no controller leads, or the
          name servers know no such set. BrokersError; ConnectError.
        """
        if controller_id < 1:
            raise ConfigurationError(f"a controller id is 1 or more, not {controller_id}")
        window = self._window()
        addresses = await self._given(controllers, broker_name, window)
        header = ElectMasterRequestHeader(
            cluster_name=cluster or await self._cluster_of(broker_name),
            broker_name=broker_name,
            broker_id=controller_id,
            designate_elect=True,
        )
        address, answer = await self._ask_leader(
            addresses,
            window,
            RequestCode.CONTROLLER_ELECT_MASTER,
            header,
            ok=(ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST),
        )
        # The body is left alone: that of Apache's controller is no plain JSON.
        with reading_answer(address):
            found = decode(ElectMasterResponseHeader, answer.ext_fields)
        return ElectedMaster(
            broker_name,
            found.master_broker_id or controller_id,
            found.master_address or "",
            found.master_epoch or 0,
            answer.code == ResponseCode.SUCCESS,
        )

    async def clean_broker_data(
        self,
        broker_name: str,
        controller_ids: Collection[int] = (),
        *,
        is_living_too: bool = False,
        cluster: str | None = None,
        controllers: Sequence[str] | None = None,
    ) -> None:
        """Have the controllers forget brokers of a set: machines that will not come back.

        Args:
          broker_name: of the set.
          controller_ids: which brokers, none of which may be alive; empty: the whole set, which
            must be without a master.
          is_living_too: without these conditions.
          cluster: of the set; None: as the name servers have it.

        Raises: ServerError: one is alive, or unknown (CONTROLLER_INVALID_CLEAN_BROKER_METADATA).
          NotFoundError: no controller leads. BrokersError; ConnectError.
        """
        window = self._window()
        addresses = await self._given(controllers, broker_name, window)
        ids = ";".join(map(str, sorted(set(controller_ids)))) or None
        header = CleanBrokerDataRequestHeader(
            cluster_name=cluster or await self._cluster_of(broker_name),
            broker_name=broker_name,
            broker_controller_ids_to_clean=ids,
            is_clean_living_broker=is_living_too,
        )
        await self._ask_leader(addresses, window, RequestCode.CLEAN_BROKER_DATA, header)

    async def controller_config(
        self, controllers: Sequence[str] | None = None
    ) -> dict[str, dict[str, str]]:
        """The settings of each controller, by its address.

        Raises: BrokersError: some failed; ServerError or ConnectError: the only one. As
          `controllers`.
        """
        code = RequestCode.GET_CONTROLLER_CONFIG
        return await self._ask_each("the settings", controllers, code, b"")

    async def update_controller_config(
        self, settings: Mapping[str, str], *, controllers: Sequence[str] | None = None
    ) -> None:
        """Change settings of each controller.

        Apache's controllers ignore a key that they do not know.

        Args:
          settings: keys of controller.conf to values.

        Raises: ConfigurationError: no settings, or a key that cannot be one. BrokersError: some
          failed, and `partial` has the addresses of the others; ServerError or ConnectError: the
          only one. As `controllers`.
        """
        body = properties_body(settings)
        code = RequestCode.UPDATE_CONTROLLER_CONFIG
        await self._ask_each("the change of settings", controllers, code, body)

    async def broker_epochs(self, broker: str) -> EpochEntryCache:
        """Under which masters the parts of a broker's log were written.

        Args:
          broker: a broker's name (of its master then) or its `host:port`.

        Raises: NotFoundError: no broker is called so. ServerError: it is not in controller mode.
          ConnectError.
        """
        at = await self._brokers.one(broker)
        return await self._epochs(at.name, at.address)

    async def set_epochs(self, broker_name: str) -> dict[str, EpochEntryCache]:
        """`broker_epochs` of each broker of a set, by its `host:port`.

        Raises: NotFoundError: no broker is called so. BrokersError: some failed, and `partial` has
          the answers of the others; ServerError or ConnectError: the only one.
        """
        members = [each for each in each_of(await self._brokers.find()) if each.name == broker_name]
        if not members:
            raise NotFoundError(f"no broker is called {broker_name!r}")
        calls = {each.address: partial(self._epochs, each.name, each.address) for each in members}
        answers = await ask_all(calls)
        answers.check("the epochs", answers.values)
        return answers.values

    async def _epochs(self, name: str, address: str) -> EpochEntryCache:
        header = None if name == address else GetReplicaInfoRequestHeader(broker_name=name)
        code = RequestCode.GET_BROKER_EPOCH_CACHE
        answer = await self._client.request(address, code, header)
        with reading_answer(address):
            return EpochEntryCache.from_body(answer.body)

    # Who is asked

    def _window(self) -> Window:
        """The time of one verb."""
        return self._client.window(self._client.timeout_s, self._client.timeout_s)

    async def _given(
        self, controllers: Sequence[str] | None, broker_name: str | None, window: Window
    ) -> tuple[str, ...]:
        if controllers is None:
            return await self._controllers(broker_name, window)
        if not controllers:
            raise ConfigurationError("no controllers are given")
        return tuple(dict.fromkeys(controllers))

    async def _controllers(self, broker_name: str | None, window: Window) -> tuple[str, ...]:
        async def ask(address: str) -> tuple[str, ...]:
            code = RequestCode.GET_BROKER_CONFIG
            answer = await self._client.request(address, code, timeout_s=_left_s(window))
            # A file of properties has ":" as "\:".
            text = settings_of(address, answer.body).get(CONTROLLER_KEY, "").replace("\\", "")
            return tuple(dict.fromkeys(filter(None, map(str.strip, text.split(";")))))

        brokers = await self._brokers.find()
        members = [each for each in each_of(brokers) if broker_name in (None, each.name)]
        if not members:
            raise NotFoundError(
                "the name servers know no broker"
                + ("" if broker_name is None else f" called {broker_name!r}")
                + "; give the controllers' addresses"
            )
        calls = {label(each): partial(ask, each.address) for each in members}
        found, answers = await first_of(calls, bool)
        if found is not None:
            return answers.values[found]
        if not answers.values:
            answers.check("the controllers' addresses", ())
        raise NotFoundError(f"no broker is in controller mode: {', '.join(answers.values)}")

    async def _cluster_of(self, broker_name: str) -> str:
        for broker in await self._brokers.find():
            if broker.name == broker_name:
                return broker.cluster
        raise NotFoundError(
            f"the name servers know no broker called {broker_name!r}; give its cluster"
        )

    async def _metadata(
        self, addresses: Sequence[str], window: Window
    ) -> Answers[str, ControllerInfo]:
        return await ask_all(self._metadata_calls(addresses, _left_s(window)))

    def _metadata_calls(
        self, addresses: Sequence[str], timeout_s: float
    ) -> dict[str, Callable[[], Awaitable[ControllerInfo]]]:
        async def ask(address: str) -> ControllerInfo:
            code = RequestCode.CONTROLLER_GET_METADATA_INFO
            answer = await self._client.request(address, code, timeout_s=timeout_s)
            with reading_answer(address):
                found = decode(GetMetaDataResponseHeader, answer.ext_fields)
            return ControllerInfo(
                address,
                bool(found.is_leader),
                found.controller_leader_id or "",
                found.controller_leader_address or "",
                found.group or "",
                found.peers or "",
            )

        return {address: partial(ask, address) for address in addresses}

    async def _leader(self, addresses: Sequence[str], window: Window) -> str:
        """The address of the leader: one of those given that leads, or that they name.

        Raises: NotFoundError: those that answer know of none. BrokersError: none answers.
        """
        calls = self._metadata_calls(addresses, _left_s(window) * LEADER_SHARE)
        found, answers = await first_of(calls, lambda info: info.is_leader)
        if found is not None:
            return found
        for info in answers.values.values():
            if info.leader_address:
                return info.leader_address
        if not answers.values:
            answers.check("the leader of the controllers", None, "controllers")
        raise NotFoundError(
            f"none of the controllers leads: {', '.join(addresses)}. They elect one, or most of "
            "them are not up"
        )

    async def _ask_leader(
        self,
        addresses: Sequence[str],
        window: Window,
        code: RequestCode,
        header: Header | None,
        body: bytes = b"",
        *,
        ok: Sequence[int] = (ResponseCode.SUCCESS,),
    ) -> tuple[str, RemotingCommand]:
        """The leader's answer and its address; asked again while no controller leads."""
        while True:
            try:
                leader = await self._leader(addresses, window)
                timeout_s = _left_s(window)
                return leader, await self._client.request(
                    leader, code, header, body, timeout_s=timeout_s, ok=ok
                )
            except (NotFoundError, ServerError) as error:
                if not _is_without_leader(error) or not await window.pause():
                    raise

    async def _ask_each(
        self, what: str, controllers: Sequence[str] | None, code: RequestCode, body: bytes
    ) -> dict[str, dict[str, str]]:
        window = self._window()
        addresses = await self._given(controllers, None, window)

        async def ask(address: str) -> dict[str, str]:
            answer = await self._client.request(address, code, body=body, timeout_s=_left_s(window))
            return settings_of(address, answer.body)

        answers = await ask_all({address: partial(ask, address) for address in addresses})
        answers.check(what, answers.values, "controllers")
        return answers.values


def _is_without_leader(error: ClientError) -> bool:
    """Whether the controllers may have a leader a moment later."""
    if isinstance(error, ServerError):
        return error.code == ResponseCode.CONTROLLER_NOT_LEADER
    return isinstance(error, NotFoundError)


def _left_s(window: Window) -> float:
    """The seconds that are left for a request."""
    return max(window.left_s, LAST_S)
