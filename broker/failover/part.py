"""Membership: the requests that only a broker in controller mode serves.

EXCHANGE_BROKER_HA_INFO (906) tells a slave where to connect, GET_BROKER_EPOCH_CACHE (1007) tools
which epochs the log has.

A controller says by NOTIFY_BROKER_ROLE_CHANGED (1008) that the set has changed. Anyone who can
connect could send that, so the broker takes it as a hint only, and asks the controllers of its
configuration.
"""

from __future__ import annotations

from collections.abc import Callable

from ...common.steps import Steps
from ...remoting.bodies import EpochEntry, EpochEntryCache
from ...remoting.bodies.controller import OPEN_END
from ...remoting.channel import Answer, Channel
from ...remoting.codec import RemotingCommand
from ...remoting.headers import (
    ExchangeHAInfoHeader,
    NotifyBrokerRoleChangedRequestHeader,
    decode,
    encode_header,
)
from ...remoting.metrics.families import Samples
from ...remoting.request_codes import RequestCode
from ...store.ha.member import SetMember
from ..part import Foundation, Part, Processors, Serving
from . import metrics
from .roles import Role


class Membership(Part):
    """The part of a broker that belongs to a set.

    Args:
      member: its place in the set.
      role: the broker's.
      has_lease: whether the controller has answered lately.
      ask_again: asks the controller for the set now.
    """

    def __init__(
        self,
        foundation: Foundation,
        *,
        member: SetMember,
        role: Role,
        has_lease: Callable[[], bool],
        ask_again: Callable[[], None],
    ) -> None:
        self._foundation = foundation
        self._member = member
        self._role = role
        self._has_lease = has_lease
        self._ask_again = ask_again
        self._heard: tuple[int | None, int, int] | None = None

    def processors(self, serving: Serving) -> Processors:
        """See `Part`."""
        return {
            RequestCode.EXCHANGE_BROKER_HA_INFO: self._ha_info,
            RequestCode.GET_BROKER_EPOCH_CACHE: self._epochs,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._role_changed,
        }

    def collect(self, samples: Samples) -> Steps[None]:
        """See `Part`."""
        metrics.collect(
            self._foundation.store,
            self._member,
            self._role.name.lower(),
            has_lease=self._has_lease(),
            samples=samples,
        )
        yield from ()

    def _ha_info(self, request: RemotingCommand, _: Channel) -> Answer:
        """Say where slaves connect. A request that names another master is answered, and changes
        nothing: it has no proof that it comes from a broker of this name."""
        named = decode(ExchangeHAInfoHeader, request.ext_fields).master_ha_address
        if named is not None or self._role is not Role.MASTER:
            return request.answer()
        address, store = self._foundation.address, self._foundation.store
        header = ExchangeHAInfoHeader(
            master_ha_address=address.ha_server_addr(),
            master_address=address.broker_addr,
            master_flush_offset=store.flusher.flushed_offset,
        )
        return request.answer(ext_fields=encode_header(header))

    def _epochs(self, request: RemotingCommand, _: Channel) -> Answer:
        config, end = self._foundation.config, self._foundation.store.max_physical_offset
        entries = tuple(self._member.epochs.epochs)
        ends = [*(entry.start for entry in entries[1:]), OPEN_END]
        body = EpochEntryCache(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            epoch_list=[
                EpochEntry(epoch=entry.number, start_offset=entry.start, end_offset=stop)
                for entry, stop in zip(entries, ends, strict=False)
            ],
            max_offset=end,
        )
        return request.answer(body=body.to_body())

    def _role_changed(self, request: RemotingCommand, _: Channel) -> Answer:
        header = decode(NotifyBrokerRoleChangedRequestHeader, request.ext_fields)
        place = (header.master_broker_id, header.master_epoch, header.sync_state_set_epoch)
        if place != self._heard:
            self._heard = place
            self._ask_again()
        return request.answer()
