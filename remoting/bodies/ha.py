"""HARuntimeInfo: the state of replication, answer 907."""

from __future__ import annotations

import msgspec

from .base import Body, Int32, Int64


class HAConnectionRuntimeInfo(Body):
    """One slave, as its master sees it.

    Attributes:
      addr: `host:port`.
      slave_ack_offset: physical offset up to which it has the log.
      diff: bytes of the log that it lacks.
      in_sync: whether it counts as available.
      transferred_byte_in_second: bytes sent in the last second.
      transfer_from_where: physical offset of the next byte to be sent.
    """

    addr: str = ""
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0


class HAClientRuntimeInfo(Body):
    """The state of a slave; for a master all is 0.

    Attributes:
      master_addr: `host:port` that it follows; None: none, or it is a master.
      transferred_byte_in_second: bytes received in the last second.
      max_offset: physical offset of its log's end.
      last_read_timestamp, last_write_timestamp: when bytes were last received from the master, or
        sent to it, ms since 1970; 0: not since it connected.
      master_flush_offset: physical offset up to which the master has fsynced; 0: unknown.
    """

    master_addr: str | None = None
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0


class HARuntimeInfo(Body):
    """Answer to GET_BROKER_HA_STATUS (907).

    Attributes:
      master: whether the broker is a master.
      master_commit_log_max_offset: physical offset of a master's log end; 0 for a slave.
      in_sync_slave_nums: slaves that count as available.
      ha_connection_info: its slaves.
      ha_client_runtime_info: the state of a slave.
    Source: RocketMQ 5.5.0 HARuntimeInfo.
    """

    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = msgspec.field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)
