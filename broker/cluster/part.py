"""Cluster: the broker's registration with the name servers, and what they know of topics."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...common.notifier import Notifier
from ...common.supervision import FailureLog, Supervisor
from ..part import Foundation, Part
from ..tables.part import Tables
from .registration import Registrar
from .registration_answer import Master
from .registration_request import BrokerIdentity
from .topic_routes import TopicRoutes

_failures = FailureLog(logging.getLogger(__name__))


class Cluster(Part):
    """The broker in its cluster.

    Args:
      filter_servers: returns the addresses of the registered ones.

    Attributes:
      registrar: keeps the broker registered.
      routes: what the name servers know of topics that clients have assigned to them.
      masters: notified of the master that the name servers name; None: they name none.
    """

    def __init__(
        self,
        foundation: Foundation,
        tables: Tables,
        filter_servers: Callable[[], tuple[str, ...]],
    ) -> None:
        config, client, address = foundation.config, foundation.seams.client, foundation.address

        def identity() -> BrokerIdentity:
            return BrokerIdentity(
                config,
                address.broker_addr,
                address.ha_server_addr(),
                filter_servers(),
                tables.mappings.topic_queue_mapping_table,
            )

        member = foundation.seams.member
        # Without a permanent id there is no broker id to register with.
        self._is_listed = member is None or member.controller_id > 0
        self.masters = Notifier[Master | None](
            _failures, "following another master", "The slave asks again at its next registration"
        )
        self.registrar = Registrar(config, client, tables.topics, identity, self.masters.notify)
        self.routes = TopicRoutes(config, client)
        tables.changed_topics.subscribe(self.registrar.topics_changed)
        foundation.live.subscribe(
            self.registrar.changed,
            "compressedRegister",
            "enableSplitRegistration",
            "forceRegister",
            "registerNameServerPeriod",
            "splitRegistrationSize",
        )

    async def start(self, services: Supervisor) -> None:
        """Start its services; returns when the name servers that answer know the broker."""
        services.start_soon("the refreshing of routes", self.routes.run)
        if self._is_listed:
            await services.start("the registration", self.registrar.run)
