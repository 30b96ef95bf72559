"""The keys of controller mode in broker.conf: RocketMQ's names in snake_case, its types.

Pure. Java counterpart: common/BrokerConfig.java of 5.5.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...common.config import setting


@dataclass
class ControllerModeConfig:
    """Keys of a broker whose master a controller elects. Without slots, as it is one of several
    bases. Times are milliseconds.

    Attributes:
      enable_controller_mode: the role comes from a controller: brokerRole and brokerId are ignored.
      controller_addr: controllers, `host:port;host:port`.
      broker_heartbeat_interval: between two heartbeats to each controller.
      send_heartbeat_timeout_millis: for the answer to a heartbeat.
      controller_heart_beat_timeout_mills: after this long without a heartbeat another master is
        elected; a master that had no answer for three quarters of it stops confirming sends.
      sync_broker_metadata_period: between two questions for the master and the in-sync set.
      sync_controller_metadata_period: between two questions for the leader of the controllers.
      check_sync_state_set_period: between two looks at which slaves are in sync.
      broker_election_priority: of brokers that have equally much, the one with the smallest is
        elected.
    """

    enable_controller_mode: bool = False
    controller_addr: str = ""
    broker_heartbeat_interval: int = setting(1_000, minimum=10)
    send_heartbeat_timeout_millis: int = setting(1_000, minimum=10)
    controller_heart_beat_timeout_mills: int = setting(10_000, minimum=100)
    sync_broker_metadata_period: int = setting(5_000, minimum=10)
    sync_controller_metadata_period: int = setting(10_000, minimum=10)
    check_sync_state_set_period: int = setting(5_000, minimum=10)
    broker_election_priority: int = setting(2**31 - 1, minimum=0, maximum=2**31 - 1)

    @property
    def controller_addresses(self) -> tuple[str, ...]:
        """The controllers, `host:port` each, in the order given, without repetitions."""
        return tuple(dict.fromkeys(filter(None, map(str.strip, self.controller_addr.split(";")))))
