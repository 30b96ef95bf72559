"""Generator of docs/protocol.md: RocketMQ's request codes, and the servers that serve them here.

It starts the servers in memory and reads their tables, so the page lists only codes that have a
processor. Run it after a change of a table: `python -m trocket.cli.protocol_table FILE`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import trio

from ..broker.controller import BrokerController
from ..broker.settings.config import BrokerConfig
from ..common.clock import ManualClock
from ..controller.config import ControllerConfig
from ..controller.server import ControllerServer
from ..disk.memory_disk import MemoryDisk
from ..filtersrv.config import FiltersrvConfig
from ..filtersrv.controller import FiltersrvController
from ..interop.wire_differ.catalogue import catalogue, coverage
from ..namesrv.config import NamesrvConfig
from ..namesrv.controller import NamesrvController
from ..remoting.request_codes import UNSERVED_BY_APACHE, RequestCode
from ..store.config import MessageStoreConfig

HEAD = """\
# Protocol

RocketMQ's remoting protocol: frames of up to 16 MiB, a header in JSON or in ROCKETMQ's binary form
(a response uses the form of its request), request and response matched by `opaque`. The table lists
all request codes of RocketMQ 5.5.0, with the codes 50 to 54 of 4.9, 301 and 302 of 4.2, and 30302
and 30303 of trocket, and the servers that serve them here. A name server or controller with
accounts serves 3001 to 3010, too. A code that no server serves is answered with code 3 and the
remark ` request type N not supported`, as RocketMQ does. Some go the other way: a server sends
them, to clients or to brokers.

"None, as with Apache" means that RocketMQ only has a name for the code: none of its servers of
5.5.0 and 4.9.7 serves it, and no client sends it, so there is nothing to be served. Ours answer it
as they do.

"Partly" means that a part of the request is not supported; the last column names it. "Valid" and
"invalid" count the requests with which `trocket interop diff` compares the answers with those of
Apache's servers, field by field; intended differences are in [quirks.md](quirks.md).

`python -m trocket.cli.protocol_table docs/protocol.md` generates this page from the servers' own
tables; a test compares it.
"""

PARTLY: Mapping[RequestCode, str] = MappingProxyType(
    {
        RequestCode.PULL_MESSAGE: "lite topics",
        RequestCode.LITE_PULL_MESSAGE: "lite topics",
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "lite topics",
        RequestCode.UPDATE_AND_CREATE_TOPIC: "`cleanup.policy=COMPACTION`",
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: "`cleanup.policy=COMPACTION`",
        RequestCode.GET_BROKER_CONFIG: "only the keys that trocket supports",
        RequestCode.GET_NAMESRV_CONFIG: "only the keys that trocket supports",
        RequestCode.GET_CONTROLLER_CONFIG: "only the keys that trocket supports",
    }
)
"""Unsupported parts of served requests; the processors' modules list them, too."""

WITH_KEY: Mapping[RequestCode, str] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
                RequestCode.DELETE_ACL_CONFIG,
                RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
                RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
                RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
            ),
            "aclEnable",
        ),
        **dict.fromkeys(
            (
                RequestCode.EXCHANGE_BROKER_HA_INFO,
                RequestCode.GET_BROKER_EPOCH_CACHE,
                RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
            ),
            "enableControllerMode",
        ),
    }
)
"""Requests that only a broker with a certain key serves."""

SENT: Mapping[RequestCode, str] = MappingProxyType(
    {
        RequestCode.CHECK_TRANSACTION_STATE: "broker",
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: "broker",
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: "broker",
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: "broker",
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: "broker",
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: "name server",
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED: "controller",
    }
)
"""Requests by the server that sends them; a server refuses them when it receives one."""

_FILE_SIZE = 64 * 1024
"""Bytes of each store file of the broker in memory: enough for a start."""


def served_codes() -> dict[str, frozenset[int]]:
    """The request codes of each server, by its name."""
    clock = ManualClock()
    namesrv = NamesrvController(NamesrvConfig(), clock=clock, disk=MemoryDisk())
    controller = ControllerServer(ControllerConfig(), clock=clock, disk=MemoryDisk())
    filtersrv = FiltersrvController(FiltersrvConfig(), {})
    return {
        "name server": namesrv.server.codes,
        "broker": trio.run(_broker_codes, clock),
        "controller": controller.server.codes,
        "filter server": filtersrv.server.codes,
    }


async def _broker_codes(clock: ManualClock) -> frozenset[int]:
    config = BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", broker_ip2="127.0.0.1")
    store = MessageStoreConfig(
        store_path_root_dir="/store",
        mapped_file_size_commit_log=_FILE_SIZE,
        mapped_file_size_consume_queue=_FILE_SIZE,
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
    covered = coverage(catalogue())
    names = " | ".join(served)
    lines = [HEAD, f"| code | name | {names} | valid | invalid | not supported |"]
    lines.append("|---|---|" + "---|" * len(served) + "---|---|---|")
    for code in sorted(RequestCode):
        cells = [state(code, server, codes) for server, codes in served.items()]
        good, bad = (
            sum(covered[server, code.value, is_wrong] for server in served)
            for is_wrong in (False, True)
        )
        if not any(cells):
            cells = ["none, as with Apache" if code in UNSERVED_BY_APACHE else "refused"] * len(
                cells
            )
            bad = covered["broker", code.value, True]
        asked = [str(good), str(bad)] if good or bad else ["", ""]
        row = [str(code.value), code.name, *cells, *asked, PARTLY.get(code, "")]
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", *(_counts(name, codes) for name, codes in served.items())]
    return "\n".join(lines) + "\n"


def state(code: RequestCode, server: str, codes: frozenset[int]) -> str:
    """A server's support for a code: "yes", "partly", "sends", or "" if it refuses the code; for
    what needs a key, the key.

    Args:
      codes: the codes that the server serves.
    """
    if code not in codes:
        if code in WITH_KEY and server == "broker":
            return f"`{WITH_KEY[code]}`"
        return "sends" if SENT.get(code) == server else ""
    return "partly" if code in PARTLY else "yes"


def _counts(server: str, codes: frozenset[int]) -> str:
    partly = sum(code in PARTLY for code in codes)
    keys = Counter(
        key for code, key in WITH_KEY.items() if server == "broker" and code not in codes
    )
    more = keys.total()
    with_key = "".join(f"{count} more with `{key}`, " for key, count in keys.items())
    return (
        f"The {server} serves {len(codes)} of {len(RequestCode)} codes, {partly} of them partly, "
        f"{with_key}and refuses {len(RequestCode) - len(codes) - more}, "
        f"{len(UNSERVED_BY_APACHE)} of which Apache's servers refuse, too.\n"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
