"""`trocket broker`: a broker, or one of the commands that administer running brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..common.terminal import plain, show, time_text
from .cluster import cluster_config, cluster_info
from .completion import broker_names
from .session import (
    SHARED,
    BrokerName,
    OnlyCluster,
    Shared,
    Yes,
    administer,
    ask_brokers,
    confirm,
    emit,
    end_with,
    fail,
    note_none,
    usage,
    whole_or_part,
)
from .statistics_view import growth_rows, progress_tree, rate

if TYPE_CHECKING:
    from ..client import Admin, BrokerStats, Rates

app = typer.Typer()

AnyBroker = Annotated[
    str,
    typer.Argument(
        metavar="[BROKER]",
        help="The broker: its name, or host:port. Default: all masters.",
        autocompletion=broker_names,
    ),
]


@app.command("stats", epilog="Example: trocket broker stats")
def broker_stats(
    broker: Annotated[
        str,
        typer.Argument(
            metavar="[BROKER]",
            help="The broker: its name, or host:port. Default: all brokers.",
            autocompletion=broker_names,
        ),
    ] = "",
    cluster: OnlyCluster = "",
    shared: Shared = SHARED,
) -> None:
    """Show how brokers run: version, uptime, messages per second and today, disks.

    Of one broker everything is shown.
    """
    if broker and cluster:
        usage("give a BROKER or --cluster, not both")

    async def ask(admin: Admin) -> tuple[tuple[BrokerStats, ...], str]:
        if broker:
            return (await admin.broker_stats(broker),), ""
        return await whole_or_part(admin.all_broker_stats(cluster or None))

    found, error = administer(shared, ask)
    if shared.as_json:
        emit(found[0] if broker else found)
    elif broker:
        show(["Name", "Value"], _facts(found[0]), title=broker)
    else:
        show(
            ["Broker", "Id", "Address", "Version", "Started", "In/s", "Out/s", "In today", "Disk"],
            [
                [
                    each.broker_name,
                    each.broker_id,
                    each.address,
                    each.version,
                    time_text(each.boot_ms),
                    _now(each.put),
                    _now(each.got),
                    each.put_today,
                    _percent(each.commit_log_disk_ratio),
                ]
                for each in found
            ],
        )
    end_with(error)


def _facts(stats: BrokerStats) -> list[list[object]]:
    """Typed figures, by our names; then the broker's own strings."""
    import msgspec

    rows: list[list[object]] = []
    for field in msgspec.structs.fields(stats):
        value = getattr(stats, field.name)
        if field.name == "texts":
            continue
        if isinstance(value, bool):
            value = "yes" if value else "no"
        elif isinstance(value, msgspec.Struct):
            value = " ".join(rate(each) for each in msgspec.structs.astuple(value))
        elif field.name.endswith("_ms") and field.name in ("boot_ms", "earliest_ms"):
            value = time_text(value)
        rows.append([field.encode_name, value])
    rows += [[f"texts.{name}", text] for name, text in sorted(stats.texts.items())]
    return rows


def _now(rates: Rates | None) -> str:
    return rate(None if rates is None else rates.last_10_s)


def _percent(ratio: float | None) -> str:
    return plain(None) if ratio is None else f"{ratio:.0%}"


app.command("info", epilog="Example: trocket broker info broker-a")(cluster_info)
app.command("config", epilog="Example: trocket broker config broker-a --set transactionCheckMax=5")(
    cluster_config
)


@app.command("counter", epilog="Example: trocket broker counter broker-a TOPIC_PUT_NUMS Orders")
def broker_counter(
    broker: BrokerName,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, GROUP_GET_NUMS, BROKER_PUT_NUMS…"
        ),
    ],
    key: Annotated[str, typer.Argument(metavar="KEY", help="A topic, TOPIC@GROUP, or a cluster.")],
    shared: Shared = SHARED,
) -> None:
    """Show how one of a broker's counters grew in the last minute, hour and day."""
    found = administer(shared, lambda admin: admin.counter(broker, name, key))
    if found is None:
        fail(f"the broker {broker} counted nothing as {name} {key} since it started")
    if shared.as_json:
        emit(found)
    else:
        show(
            ["Period", "Total", "Per second", "Per call"], growth_rows(found), title=f"{name} {key}"
        )


@app.command("consume-stats", epilog="Example: trocket broker consume-stats broker-a --min-lag 1")
def broker_consume_stats(
    broker: BrokerName,
    order: Annotated[
        bool, typer.Option("--order", help="Show only topics with ordered messages.")
    ] = False,
    min_lag: Annotated[
        int, typer.Option("--min-lag", min=0, help="Show only queues with at least this lag.")
    ] = 0,
    shared: Shared = SHARED,
) -> None:
    """Show how far all groups are on one broker, by a single request."""
    found = administer(shared, lambda admin: admin.broker_consume_stats(broker, is_order=order))
    if shared.as_json:
        emit(
            {
                "broker": found.broker,
                "lag": found.lag,
                "inFlight": found.in_flight,
                "groups": [progress_tree(each, min_lag) for each in found.groups],
            }
        )
        return
    rows = [
        [
            group.group,
            queue.topic,
            queue.queue_id,
            queue.committed,
            queue.end,
            queue.lag,
            time_text(queue.last_consumed_ms),
        ]
        for group in found.groups
        for queue in group.queues
        if queue.lag >= min_lag
    ]
    show(
        ["Group", "Topic", "Queue", "Committed", "End", "Lag", "Last consumed"],
        rows,
        title=f"{broker}: lag {found.lag}, in flight {found.in_flight}",
    )
    note_none(rows, f"no group has such a queue on the broker {broker}")


@app.command("clean", epilog="Example: trocket broker clean broker-a --expired-log --yes")
def broker_clean(
    broker: AnyBroker = "",
    expired_log: Annotated[
        bool,
        typer.Option("--expired-log", help="Delete log files older than fileReservedTime."),
    ] = False,
    expired_queues: Annotated[
        bool,
        typer.Option("--expired-queues", help="Delete the parts of queues without messages."),
    ] = False,
    unused_topics: Annotated[
        bool,
        typer.Option("--unused-topics", help="Delete the queues of topics that are deleted."),
    ] = False,
    yes: Yes = False,
    cluster: OnlyCluster = "",
    shared: Shared = SHARED,
) -> None:
    """Delete at once what a broker deletes by itself later."""
    if not (expired_log or expired_queues or unused_topics):
        usage("give --expired-log, --expired-queues or --unused-topics, or several of them")
    if broker and cluster:
        usage("give a BROKER or --cluster, not both")
    where = (
        f"the broker {broker}" if broker else f"the cluster {cluster}" if cluster else "all brokers"
    )
    confirm(f"This deletes what has expired on {where}.", yes=yes)

    async def clean(admin: Admin) -> tuple[dict[str, list[str]], str]:
        verbs = {
            "expiredLog": expired_log and admin.delete_expired_commit_log,
            "expiredQueues": expired_queues and admin.clean_expired_consume_queues,
            "unusedTopics": unused_topics and admin.clean_unused_topics,
        }
        done: dict[str, list[str]] = {}
        errors = []
        for name, verb in verbs.items():
            if verb:
                done[name], error = await whole_or_part(
                    verb(broker or None, cluster=cluster or None)
                )
                errors.append(error)
        return done, "; ".join(filter(None, errors))

    done, error = administer(shared, clean)
    if shared.as_json:
        emit({"cleaned": done})
    else:
        show(["Cleaned", "Broker"], [[name, each] for name in done for each in done[name]])
    end_with(error)


@app.command("wipe-write-perm", epilog="Example: trocket broker wipe-write-perm broker-a --yes")
def broker_wipe_write_perm(
    broker: BrokerName,
    yes: Yes = False,
    shared: Shared = SHARED,
) -> None:
    """Have producers avoid a broker that is to be removed; consumers still read from it.

    The name servers take the permission to write off its topics. They give it back with
    add-write-perm, or when the broker registers its topics anew.
    """
    confirm(f"Producers will no longer write to the broker {broker}.", yes=yes)
    _change_perm(shared, broker, is_added=False)


@app.command("add-write-perm", epilog="Example: trocket broker add-write-perm broker-a")
def broker_add_write_perm(broker: BrokerName, shared: Shared = SHARED) -> None:
    """Have producers write to a broker again, after wipe-write-perm."""
    _change_perm(shared, broker, is_added=True)


def _change_perm(shared: Shared, broker: str, *, is_added: bool) -> None:
    counts, error = ask_brokers(
        shared,
        lambda admin: (admin.add_write_perm if is_added else admin.wipe_write_perm)(broker),
    )
    if shared.as_json:
        emit({"topics": counts})
    else:
        show(["Name server", "Topics"], list(counts.items()))
    end_with(error)


@app.command("ha", epilog="Example: trocket broker ha broker-a")
def broker_ha(broker: BrokerName, shared: Shared = SHARED) -> None:
    """Show how a master's replication to its slaves goes, or a slave's from its master."""
    status = administer(shared, lambda admin: admin.ha_status(broker))
    if shared.as_json:
        emit(status)
    elif status.master:
        show(
            ["Slave", "Acknowledged", "Behind", "In sync", "Bytes/s"],
            [
                [
                    each.addr,
                    each.slave_ack_offset,
                    each.diff,
                    "yes" if each.in_sync else "no",
                    each.transferred_byte_in_second,
                ]
                for each in status.ha_connection_info
            ],
            title=f"{broker}: log end {status.master_commit_log_max_offset}",
        )
    else:
        slave = status.ha_client_runtime_info
        show(
            ["Master", "Log end", "Master's flushed", "Last read", "Bytes/s"],
            [
                [
                    slave.master_addr,
                    slave.max_offset,
                    slave.master_flush_offset,
                    time_text(slave.last_read_timestamp or None),
                    slave.transferred_byte_in_second,
                ]
            ],
            title=broker,
        )
