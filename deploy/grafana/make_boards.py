"""Writes the Grafana boards beside this file: `python deploy/grafana/make_boards.py`.

A board is a table of rows, and a row a table of panels; the rest of Grafana's JSON follows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

WIDTH = 24
"""Columns of a board."""

BROKER = 'cluster=~"$cluster",node_id=~"$broker"'
OF_TOPIC = f'{BROKER},topic=~"$topic"'
OF_GROUP = f'{BROKER},consumer_group=~"$group"'


class Panel(NamedTuple):
    """A panel.

    Attributes:
      title: its title.
      expressions: what it shows, by the names of the series.
      unit: Grafana's name of it.
      width, height: in columns and rows.
      kind: Grafana's name of the visualization.
    """

    title: str
    expressions: dict[str, str]
    unit: str = "short"
    width: int = 8
    height: int = 7
    kind: str = "timeseries"


def stat(title: str, expression: str, unit: str = "short") -> Panel:
    """A single number."""
    return Panel(title, {"": expression}, unit, width=3, height=4, kind="stat")


def rate(metric: str, labels: str, by: str = "") -> str:
    """The rate per second of a counter, summed up by labels."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}{{{labels}}}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str = "node_id") -> str:
    """A quantile of a histogram."""
    inner = rate(f"{metric}_bucket", BROKER, f"{by}, le")
    return f"histogram_quantile({share}, {inner})"


ROWS: dict[str, list[Panel]] = {
    "Overview": [
        stat("Ready", f"min(trocket_ready{{{BROKER}}})"),
        stat("In, messages/s", rate("rocketmq_messages_in_total", f'{BROKER},is_system="false"')),
        stat("Out, messages/s", rate("rocketmq_messages_out_total", f'{BROKER},is_system="false"')),
        stat("In", rate("rocketmq_throughput_in_total", BROKER), "Bps"),
        stat("Lag, messages", f"sum(rocketmq_consumer_lag_messages{{{BROKER}}})"),
        stat("Oldest waits", f"max(rocketmq_consumer_lag_latency_milliseconds{{{BROKER}}})", "ms"),
        stat("Topics", f"max(rocketmq_topic_number{{{BROKER}}})"),
        stat("Groups", f"max(rocketmq_consumer_group_number{{{BROKER}}})"),
    ],
    "Topics": [
        Panel(
            "In, messages/s",
            {"{{topic}}": f"topk(20, {rate('rocketmq_messages_in_total', OF_TOPIC, 'topic')})"},
        ),
        Panel(
            "In, bytes/s",
            {"{{topic}}": f"topk(20, {rate('rocketmq_throughput_in_total', OF_TOPIC, 'topic')})"},
            "Bps",
        ),
        Panel(
            "Size of a message, 99th percentile",
            {"{{topic}}": quantile(0.99, "rocketmq_message_size", "topic")},
            "bytes",
        ),
    ],
    "Consumer groups": [
        Panel(
            "Lag, messages",
            {
                "{{consumer_group}} {{topic}}": (
                    f"topk(20, rocketmq_consumer_lag_messages{{{OF_GROUP}}})"
                )
            },
        ),
        Panel(
            "Age of the oldest waiting message",
            {
                "{{consumer_group}} {{topic}}": (
                    f"topk(20, rocketmq_consumer_lag_latency_milliseconds{{{OF_GROUP}}})"
                )
            },
            "ms",
        ),
        Panel(
            "Out, messages/s",
            {
                "{{consumer_group}}": (
                    f"topk(20, {rate('rocketmq_messages_out_total', OF_GROUP, 'consumer_group')})"
                )
            },
        ),
        Panel(
            "Pulled and not consumed",
            {
                "{{consumer_group}} {{topic}}": (
                    f"topk(20, rocketmq_consumer_inflight_messages{{{OF_GROUP}}})"
                )
            },
        ),
        Panel(
            "Dead letters/s",
            {
                "{{consumer_group}}": rate(
                    "rocketmq_send_to_dlq_messages_total", OF_GROUP, "consumer_group"
                )
            },
        ),
        Panel(
            "Connected consumers",
            {
                "{{consumer_group}}": (
                    f"sum by (consumer_group) (rocketmq_consumer_connections{{{OF_GROUP}}})"
                )
            },
        ),
    ],
    "Transactions and timers": [
        Panel("Open transactions", {"{{node_id}}": f"rocketmq_half_messages{{{BROKER}}}"}),
        Panel(
            "Ends of transactions/s",
            {
                "committed": rate("rocketmq_commit_messages_total", BROKER),
                "rolled back": rate("rocketmq_rollback_messages_total", BROKER),
            },
        ),
        Panel(
            "Waiting timer messages",
            {"{{topic}}": f"sum by (topic) (rocketmq_timing_messages{{{BROKER}}})"},
        ),
    ],
    "Pop consumption": [
        Panel(
            "Not acknowledged in time, messages/s",
            {
                "{{consumer_group}}": rate(
                    "rocketmq_pop_revive_retry_messages_total", OF_GROUP, "consumer_group"
                )
            },
        ),
        Panel(
            "Records of pops and acknowledgements/s",
            {
                "stored {{revive_message_type}}": rate(
                    "rocketmq_pop_revive_in_message_total", BROKER, "revive_message_type"
                ),
                "read {{revive_message_type}}": rate(
                    "rocketmq_pop_revive_out_message_total", BROKER, "revive_message_type"
                ),
            },
        ),
        Panel(
            "Pops in memory",
            {
                "not stored {{node_id}}": f"rocketmq_pop_checkpoint_buffer_size{{{BROKER}}}",
                "not committed {{node_id}}": f"rocketmq_pop_offset_buffer_size{{{BROKER}}}",
            },
        ),
        Panel(
            "Records that were not read",
            {
                "{{node_id}}": (
                    f"sum by (node_id) (rocketmq_pop_revive_lag_milliseconds{{{BROKER}}})"
                )
            },
        ),
        Panel(
            "Age of the oldest record that was not read",
            {
                "{{node_id}}": (
                    f"max by (node_id) (rocketmq_pop_revive_latency_milliseconds{{{BROKER}}})"
                )
            },
            "ms",
        ),
        Panel(
            "Storing check points, 99th percentile",
            {"{{node_id}}": quantile(0.99, "rocketmq_pop_buffer_scan_time_consume_milliseconds")},
            "ms",
        ),
    ],
    "Store": [
        Panel(
            "Commit log not on the device",
            {"{{node_id}}": f"rocketmq_storage_flush_behind_bytes{{{BROKER}}}"},
            "bytes",
        ),
        Panel(
            "fsync of the commit log",
            {
                "median": quantile(0.5, "trocket_fsync_seconds"),
                "99th percentile": quantile(0.99, "trocket_fsync_seconds"),
            },
            "s",
        ),
        Panel(
            "Age of the oldest message",
            {"{{node_id}}": f"rocketmq_storage_message_reserve_time_milliseconds{{{BROKER}}}"},
            "ms",
        ),
        Panel(
            "Used space of the partition",
            {"{{node_id}}": f"rocketmq_storage_size_bytes{{{BROKER}}}"},
            "bytes",
        ),
        Panel(
            "Files of the commit log",
            {"{{node_id}} {{state}}": f"trocket_commit_log_files{{{BROKER}}}"},
        ),
        Panel("Consume queues", {"{{node_id}}": f"trocket_consume_queues{{{BROKER}}}"}),
    ],
    "Replication": [
        Panel(
            "Slaves",
            {
                "in sync {{node_id}}": f"trocket_ha_slaves_in_sync{{{BROKER}}}",
                "wanted {{node_id}}": f"trocket_ha_slaves_wanted{{{BROKER}}}",
            },
        ),
        Panel(
            "A slave is behind, bytes",
            {"{{node_id}} {{slave}}": f"trocket_ha_slave_behind_bytes{{{BROKER}}}"},
            "bytes",
        ),
        Panel(
            "A slave is behind, time",
            {"{{node_id}} {{slave}}": f"trocket_ha_slave_behind_seconds{{{BROKER}}}"},
            "s",
        ),
        Panel(
            "Age of the last acknowledgement",
            {"{{node_id}} {{slave}}": f"trocket_ha_slave_ack_age_seconds{{{BROKER}}}"},
            "s",
        ),
        Panel(
            "Slaves that follow",
            {"{{node_id}} {{instance}}": f"trocket_ha_following{{{BROKER}}}"},
        ),
        Panel(
            "End of the log",
            {"{{node_id}} {{role}}": f"trocket_commit_log_end_bytes{{{BROKER}}}"},
            "bytes",
        ),
    ],
    "Name servers": [
        Panel("Brokers", {"{{node_id}} {{cluster}} {{role}}": "trocket_namesrv_brokers"}),
        Panel("Topics", {"{{node_id}}": "trocket_namesrv_topics"}),
        Panel(
            "Requests/s",
            {
                "{{node_id}} {{request_code}}": (
                    "topk(20, rate(trocket_namesrv_requests_total[$__rate_interval]))"
                )
            },
        ),
    ],
    "Process": [
        Panel(
            "Lag of the event loop",
            {
                "median": quantile(0.5, "trocket_event_loop_lag_seconds"),
                "99th percentile": quantile(0.99, "trocket_event_loop_lag_seconds"),
            },
            "s",
        ),
        Panel(
            "Slow bursts/s",
            {"{{node_id}}": rate("trocket_slow_burst_seconds_count", BROKER, "node_id")},
        ),
        Panel(
            "Sends stored by one write",
            {
                "{{node_id}}": (
                    rate("trocket_turn_messages_sum", BROKER, "node_id")
                    + " / "
                    + rate("trocket_turn_messages_count", BROKER, "node_id")
                )
            },
        ),
        Panel(
            "Requests/s",
            {
                "{{request_code}}": (
                    "topk(20, "
                    + rate("rocketmq_rpc_latency_milliseconds_count", BROKER, "request_code")
                    + ")"
                )
            },
        ),
        Panel(
            "Refused requests/s",
            {
                "{{request_code}} {{response_code}}": (
                    "topk(20, "
                    + rate(
                        "rocketmq_rpc_latency_milliseconds_count",
                        f'{BROKER},response_code!="success"',
                        "request_code, response_code",
                    )
                    + ")"
                )
            },
        ),
        Panel(
            "Connections",
            {
                "{{node_id}}": f"trocket_connections{{{BROKER}}}",
                "held pulls {{node_id}}": f"trocket_held_pulls{{{BROKER}}}",
            },
        ),
        Panel(
            "CPU, cores",
            {
                "{{instance}}": (
                    'rate(process_cpu_seconds_total{instance=~"$instance"}[$__rate_interval])'
                )
            },
        ),
        Panel(
            "Memory",
            {
                "resident {{instance}}": 'process_resident_memory_bytes{instance=~"$instance"}',
                "connections {{node_id}}": f"trocket_connection_memory_bytes{{{BROKER}}}",
            },
            "bytes",
        ),
        Panel(
            "Collection of metrics", {"{{node_id}}": f"trocket_collection_seconds{{{BROKER}}}"}, "s"
        ),
    ],
}

VARIABLES = {
    "cluster": "label_values(rocketmq_topic_number, cluster)",
    "broker": 'label_values(rocketmq_topic_number{cluster=~"$cluster"}, node_id)',
    "topic": f"label_values(rocketmq_messages_in_total{{{BROKER}}}, topic)",
    "group": f"label_values(rocketmq_consumer_lag_messages{{{BROKER}}}, consumer_group)",
    "instance": f"label_values(trocket_ready{{{BROKER}}}, instance)",
}

_SOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}


def board() -> dict[str, Any]:
    """Grafana's JSON of the board."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(
            {
                "type": "row", "title": title, "collapsed": False, "panels": [],
                "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y},
            }
        )  # fmt: skip
        x, y = 0, y + 1
        for panel in row:
            if x + panel.width > WIDTH:
                x, y = 0, y + panel.height
            panels.append(_panel(panel, x, y))
            x += panel.width
        y += row[-1].height
    for number, each in enumerate(panels, start=1):
        each["id"] = number
    return {
        "__inputs": [
            {
                "name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource",
                "pluginId": "prometheus", "pluginName": "Prometheus",
            }
        ],
        "title": "trocket brokers",
        "uid": "trocket-brokers",
        "tags": ["rocketmq", "trocket"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_variable(*each) for each in VARIABLES.items()]},
        "panels": panels,
    }  # fmt: skip


def _panel(panel: Panel, x: int, y: int) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": expression,
            "legendFormat": legend or "__auto",
        }
        for at, (legend, expression) in enumerate(panel.expressions.items())
    ]  # fmt: skip
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"h": panel.height, "w": panel.width, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name, "type": "query", "datasource": _SOURCE, "query": query, "refresh": 2,
        "includeAll": True, "multi": True, "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


if __name__ == "__main__":
    path = Path(__file__).with_name("brokers.json")
    path.write_text(json.dumps(board(), indent=2) + "\n", encoding="utf-8")
