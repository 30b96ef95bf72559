"""Followed settings: parts that derive something from a key do it again when the key changes."""

from __future__ import annotations

from ..common.log_levels import apply_levels, parse_levels
from .assembly import BrokerParts


def follow_settings(parts: BrokerParts) -> None:
    """Have parts that derive something from a key do it again when the key changes."""
    config, live = parts.config, parts.live

    def on_permission() -> None:
        parts.pulls.settings_changed()
        parts.tables.topics.permission_changed()

    def on_message_size() -> None:
        # Never less: a delayed message that was accepted is delivered. Each send is checked before.
        burst = parts.store.writer.burst
        burst.body_size_max = max(burst.body_size_max, parts.store.config.max_message_size)

    def on_expiry() -> None:
        expired_s = config.channel_expired_timeout / 1000
        parts.clients.producers.expired_s = parts.clients.consumers.expired_s = expired_s
        parts.tables.filters.kept_dead_ms = config.filter_data_clean_time_span

    def on_log_levels() -> None:
        apply_levels(config.log_level, parse_levels(config.log_levels))

    live.subscribe(on_permission, "brokerPermission")
    live.subscribe(
        parts.pulls.settings_changed,
        "heldPullsMax",
        "litePullMessageEnable",
        "longPollingEnable",
        "slaveReadEnable",
    )
    live.subscribe(on_message_size, "maxMessageSize")
    if not parts.store.is_slave:  # a slave's topics are its master's
        live.subscribe(
            parts.tables.topics.settings_changed,
            "autoCreateTopicEnable",
            "brokerTopicEnable",
            "clusterTopicEnable",
            "defaultTopicQueueNums",
            "traceTopicEnable",
        )
    live.subscribe(
        parts.registrar.changed,
        "compressedRegister",
        "enableSplitRegistration",
        "forceRegister",
        "registerNameServerPeriod",
        "splitRegistrationSize",
    )
    live.subscribe(on_expiry, "channelExpiredTimeout", "filterDataCleanTimeSpan")
    live.subscribe(on_log_levels, "logLevel", "logLevels")
