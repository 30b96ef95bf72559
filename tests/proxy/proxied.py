"""A broker of the tests whose gRPC clients connect to a proxy in front of it."""

from __future__ import annotations

from typing import Any

import trio

from trocket.common.clock import WallTimeMs
from trocket.proxy.config import ProxyConfig
from trocket.proxy.controller import ProxyController
from trocket.testing import Broker
from trocket.testing.loop_thread import LoopThread

from ..grpc_server.caller import rules_now

ROOT_USER = '{"username":"root","password":"rootsecret"}'
_ROOT_KEYS = '{"accessKey":"root","secretKey":"rootsecret"}'
"""The super user of tests with accounts."""


class ProxiedBroker(Broker):
    """As `Broker`, but `broker_address` is the proxy's. Both have one time of day.

    Args:
      knows_accounts: the proxy has the accounts that the broker has, if it has some.
    """

    def __init__(self, *, knows_accounts: bool = True, **options: Any) -> None:
        super().__init__(**options)
        has_accounts = "authenticationEnabled" in options.get("config", {})
        self._has_accounts = has_accounts and knows_accounts
        self._proxy = LoopThread("trocket-broker-proxy")
        self._address = ""

    def start(self) -> None:
        super().start()
        least_poll_ms = rules_now().grpc_client_consumer_min_long_polling_timeout_millis
        config = ProxyConfig(
            namesrv_addr=self.namesrv_address,
            bind_address="127.0.0.1",
            grpc_server_port=0,
            topic_route_service_cache_refresh_seconds=1,
            subscription_group_config_cache_refresh_seconds=1,
            grpc_client_consumer_min_long_polling_timeout_millis=least_poll_ms,
            acl_cache_refresh_seconds=1,
            authentication_enabled=self._has_accounts,
            inner_client_authentication_credentials=_ROOT_KEYS if self._has_accounts else "",
        )

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            controller = ProxyController(config, now_ms=lambda: WallTimeMs(self.now_ms))
            async with trio.open_nursery() as nursery:
                await nursery.start(controller.run)
                (self._address,) = controller.listen_addresses
                task_status.started()

        self._proxy.start(run)

    def close(self) -> None:
        self._proxy.close()
        super().close()

    @property
    def broker_address(self) -> str:
        return self._address

    @property
    def own_address(self) -> str:
        """The broker's, where it serves gRPC itself."""
        return super().broker_address
