"""Answers of name servers to registrations: the master, ordered topics, data versions.

Java counterpart: broker/out/BrokerOuterAPI.registerBroker, needRegister of 5.3.3. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from ...remoting.bodies import DataVersion, KVTable
from ...remoting.codec import RemotingCommand
from ...remoting.headers import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerResponseHeader,
    decode,
    encode_header,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..settings.config import BrokerConfig


def order_topics(answer: RemotingCommand) -> list[str]:
    """The topics that the answer to REGISTER_BROKER (103) marks as consumed in order.

    Args:
      answer: with code 0; its body, if any, is the KV table of ORDER_TOPIC_CONFIG.
    Raises: RemoteProtocolError: the body is not a KV table.
    """
    return list(KVTable.from_body(answer.body).table) if answer.body else []


class Master(NamedTuple):
    """The master of a slave, from a name server's answer.

    Attributes:
      broker_addr: `host:port` for requests.
      ha_server_addr: `host:port` of its HA port, which serves the log; "": unknown.
    """

    broker_addr: str
    ha_server_addr: str


def master_of(answer: RemotingCommand) -> Master | None:
    """The master that the answer to a slave's REGISTER_BROKER (103) names; None if there is none.

    Args:
      answer: with code 0.
    """
    header = decode(RegisterBrokerResponseHeader, answer.ext_fields)
    if not header.master_addr:
        return None
    return Master(header.master_addr, header.ha_server_addr or "")


def query_data_version_request(
    config: BrokerConfig, broker_addr: str, data_version: DataVersion
) -> RemotingCommand:
    """QUERY_DATA_VERSION (322), which asks whether a name server's copy of the topics is current.

    Args:
      broker_addr: the `host:port` advertised to clients.
      data_version: of the table of topics.
    """
    header = QueryDataVersionRequestHeader(
        broker_name=config.broker_name,
        broker_addr=broker_addr,
        cluster_name=config.broker_cluster_name,
        broker_id=config.broker_id,
    )
    return RemotingCommand(
        RequestCode.QUERY_DATA_VERSION, encode_header(header), data_version.to_body()
    )


def needs_registration(answer: RemotingCommand, data_version: DataVersion) -> bool:
    """Interpret the answer to QUERY_DATA_VERSION.

    Args:
      answer: with any code.
      data_version: of the table of topics.
    Returns: True unless the name server certainly has this version.
    Raises: RemoteProtocolError: the body is not a DataVersion. RequestRefused: `changed` is
      missing.
    Source: BrokerOuterAPI.needRegister.
    """
    if answer.code != ResponseCode.SUCCESS:
        return True
    if decode(QueryDataVersionResponseHeader, answer.ext_fields).changed:
        return True
    return bool(answer.body) and DataVersion.from_body(answer.body) != data_version
