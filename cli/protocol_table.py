"""Writes docs/protocol.md: every request code of RocketMQ, and who serves it here.

The servers are started in memory and asked for their tables, so the page cannot promise what no
processor does. Run it after a change of a table: `python -m trocket.cli.protocol_table FILE`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from ..broker.config import BrokerConfig
from ..broker.controller import BrokerController
from ..namesrv.config import NamesrvConfig
from ..namesrv.controller import NamesrvController
from ..remoting.request_codes import RequestCode
from ..store.clock import ManualClock
from ..store.config import MessageStoreConfig
from ..store.memory_disk import MemoryDisk

HEAD = """\
# Protocol

RocketMQ's remoting protocol: frames of up to 16 MiB, a header in JSON or in ROCKETMQ's binary form
(the answer comes in the request's own), request and response matched by `opaque`. These are all
request codes of RocketMQ 5.5.0, with the codes 50 to 54 of 4.9, and who serves them here. Whatever
nobody serves is answered with code 3 and the remark ` request type N not supported`, as RocketMQ
does. NOTIFY_CONSUMER_IDS_CHANGED goes the other way: the broker sends it to clients.

This page is written by `python -m trocket.cli.protocol_table docs/protocol.md` from the servers'
own tables; a test compares it.
"""

_MEMORY = 64 * 1024
"""Bytes of a file of the broker in memory: enough for a start."""


def served_codes() -> dict[str, frozenset[int]]:
    """The request codes of each server, by its name."""
    clock = ManualClock()
    namesrv = NamesrvController(NamesrvConfig(), clock=clock, disk=MemoryDisk())
    return {"name server": namesrv.server.codes, "broker": trio.run(_broker_codes, clock)}


async def _broker_codes(clock: ManualClock) -> frozenset[int]:
    config = BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", broker_ip2="127.0.0.1")
    store = MessageStoreConfig(
        store_path_root_dir="/store",
        mapped_file_size_commit_log=_MEMORY,
        mapped_file_size_consume_queue=_MEMORY,
        max_hash_slot_num=1,
        max_index_num=1,
    )
    broker = BrokerController(config, store, clock=clock, disk=MemoryDisk(), listeners=[])
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        codes = broker.server.codes if broker.server else frozenset()
        nursery.cancel_scope.cancel()
    return codes


def page() -> str:
    """The whole page as Markdown."""
    served = served_codes()
    lines = [HEAD, f"| code | name | {' | '.join(served)} |", "|---|---|" + "---|" * len(served)]
    for code in sorted(RequestCode):
        cells = ("yes" if code in codes else "" for codes in served.values())
        lines.append(f"| {code.value} | {code.name} | {' | '.join(cells)} |")
    counts = ", ".join(f"{name} {len(codes)}" for name, codes in served.items())
    lines.append(f"\nServed, of {len(RequestCode)}: {counts}.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
