"""Name servers: their settings.

Java counterpart: getNamesrvConfig and updateNamesrvConfig of mqadmin.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ...remoting.request_codes import RequestCode
from .asking import Brokers, ask_all
from .brokers import properties_body, settings_of


class NameServerVerbs:
    """The part of `Admin` about name servers: all of the client's URL, each asked for itself."""

    def __init__(self, brokers: Brokers) -> None:
        self._client = brokers.client

    async def name_server_config(self) -> dict[str, dict[str, str]]:
        """The settings of each name server of the URL, by its `host:port`.

        Raises: BrokersError: some name servers failed; ServerError or ConnectError: the only one.
        """
        return await self._ask_each("the settings", RequestCode.GET_NAMESRV_CONFIG, b"")

    async def update_name_server_config(self, settings: Mapping[str, str]) -> None:
        """Change settings of all name servers of the URL, which save them.

        Apache's name servers ignore a key that they do not know.

        Args:
          settings: keys of namesrv.conf to values.

        Raises: ConfigurationError: no settings, or a key that cannot be one. BrokersError: some
          name servers failed, and `partial` has the addresses of the others; ServerError or
          ConnectError: the only one.
        """
        body = properties_body(settings)
        await self._ask_each("the change of settings", RequestCode.UPDATE_NAMESRV_CONFIG, body)

    async def _ask_each(
        self, what: str, code: RequestCode, body: bytes
    ) -> dict[str, dict[str, str]]:
        async def ask(address: str) -> dict[str, str]:
            answer = await self._client.request(address, code, body=body)
            return settings_of(address, answer.body)

        servers = self._client.url.name_servers
        answers = await ask_all({address: partial(ask, address) for address in servers})
        answers.check(what, answers.values, "name servers")
        return answers.values
