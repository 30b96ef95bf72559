"""Brokers: which there are, how they are, how they are set.

Java counterpart: clusterList, brokerStatus, getBrokerConfig, updateBrokerConfig of mqadmin.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...remoting.bodies import KVTable
from ...remoting.request_codes import RequestCode
from ..connection.client import reading_answer
from ..errors import BadAnswerError, ConfigurationError
from .asking import Brokers
from .results import ClusterView


class BrokerVerbs:
    """The part of `Admin` about brokers.

    `broker` is a broker's name (of its master then) or its `host:port`.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._client = brokers.client

    async def cluster(self) -> ClusterView:
        """All brokers of all clusters.

        Raises: ServerError; ConnectError: no name server answers.
        """
        brokers, warning = await self._brokers.find_with_warning()
        return ClusterView(self._client.url.name_servers, tuple(brokers), warning)

    async def broker_runtime_info(self, broker: str) -> dict[str, str]:
        """How a broker is: RocketMQ's names and texts, such as "putTps" and "bootTimestamp".

        Raises: NotFoundError: no broker is called so. ServerError; ConnectError.
        """
        address = await self._address(broker)
        answer = await self._client.request(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        with reading_answer(address):
            return KVTable.from_body(answer.body).table

    async def broker_config(self, broker: str) -> dict[str, str]:
        """A broker's settings, by the keys of broker.conf.

        Raises: NotFoundError: no broker is called so. ServerError; ConnectError.
        """
        address = await self._address(broker)
        answer = await self._client.request(address, RequestCode.GET_BROKER_CONFIG)
        return settings_of(address, answer.body)

    async def update_broker_config(self, broker: str, settings: Mapping[str, str]) -> str:
        """Change settings of a running broker, which writes them to its broker.conf.

        trocket's brokers change all of the settings or none: each takes effect at once, or the
        error names it. Apache's brokers ignore a key that they do not know, and some keys need a
        restart.

        Args:
          settings: keys of broker.conf to values.

        Returns: what the broker says of the change, such as that it is not saved; "": nothing.
        Raises: NotFoundError: no broker is called so. ConfigurationError: no settings, or a key
          that cannot be one. ServerError; ConnectError.
        """
        body = properties_body(settings)
        address = await self._address(broker)
        answer = await self._client.request(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
        return answer.remark or ""

    async def _address(self, broker: str) -> str:
        return (await self._brokers.one(broker)).address


def settings_of(address: str, body: bytes) -> dict[str, str]:
    """The settings in a server's answer, `key=value` lines without escapes.

    Raises: BadAnswerError: it is not UTF-8.
    """
    try:
        lines = body.decode().splitlines()
    except UnicodeDecodeError as error:
        raise BadAnswerError(address, f"its settings are not UTF-8: {error}") from error
    pairs = (line.partition("=") for line in lines)
    return {key.strip(): value for key, separator, value in pairs if separator}


def properties_body(settings: Mapping[str, str]) -> bytes:
    """The body of a request to change settings.

    Raises: ConfigurationError: there are none, or a key cannot be one.
    """
    if not settings:
        raise ConfigurationError("no settings are given")
    return _properties_text(settings).encode("ascii")


def _properties_text(settings: Mapping[str, str]) -> str:
    """Java's properties: ASCII, with escapes."""
    lines = []
    for key, value in settings.items():
        if not (key.isascii() and key.isidentifier()):
            raise ConfigurationError(f"{key!r} cannot be a key of a configuration file")
        lines.append(f"{key}={''.join(map(_escaped, value))}\n")
    return "".join(lines)


def _escaped(char: str) -> str:
    if char == "\\" or char == " ":
        return f"\\{char}"
    if " " < char < "\x7f":
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
