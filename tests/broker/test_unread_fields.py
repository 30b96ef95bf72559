"""Fields of requests that are declared and that no server reads, each with its reason.

A field that a client sends and that nobody reads is a promise that is not kept: a batch was stored
as one message because its flag was declared and not read.
"""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

import trocket
from trocket.remoting import headers
from trocket.remoting.headers.base import Header, RpcRequestHeader

ROOT = Path(trocket.__file__).parent
SERVERS = ("auth", "broker", "controller", "filtersrv", "namesrv")

UNREAD = {
    "RpcRequestHeader.namespaced": "names are taken as they are sent, as in Apache's broker",
    "RpcRequestHeader.oneway": "the frame's own flag says it",
    "ConsumerSendMsgBackRequestHeader.origin_msg_id": "only Apache's hooks read it",
    "ConsumerSendMsgBackRequestHeader.origin_topic": "the record at the offset has the topic",
    "CheckTransactionStateRequestHeader.offset_msg_id": "brokers send it, clients do not need it",
    "ReplyMessageRequestHeader.store_timestamp": "brokers send it, clients read it",
    "PullMessageRequestHeader.request_source": "no offsets of broadcasting proxies are stored",
    "PullMessageRequestHeader.proxy_froward_client_id": "as requestSource",
    "QueryMessageRequestHeader.last_key": "pages of an index in RocksDB, which is not there",
    "RegisterBrokerRequestHeader.compressed": "the body says so by its first bytes",
    "AlterSyncStateSetRequestHeader.invoke_time": "for logs of controllers only",
    "ElectMasterRequestHeader.invoke_time": "for logs of controllers only",
    "RegisterBrokerToControllerRequestHeader.invoke_time": "for logs of controllers only",
    "CleanBrokerDataRequestHeader.invoke_time": "for logs of controllers only",
}  # fmt: skip


def requests() -> set[type[Header]]:
    modules = [
        import_module(f"{headers.__name__}.{each.name}")
        for each in pkgutil.iter_modules(headers.__path__)
    ]
    return {
        each
        for module in modules
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, Header) and "Request" in name
    }


@pytest.mark.slow
def test_each_declared_field_of_a_request_is_read_or_has_a_reason():
    text = "\n".join(
        path.read_text() for folder in SERVERS for path in (ROOT / folder).rglob("*.py")
    )
    inherited = {field.name for field in msgspec.structs.fields(RpcRequestHeader)}
    unread = set()
    for request in requests():
        for field in msgspec.structs.fields(request):
            read = rf"\.{field.name}\b|\"{re.escape(field.encode_name)}\""
            if not re.search(read, text):
                owner = "RpcRequestHeader" if field.name in inherited else request.__name__
                unread.add(f"{owner}.{field.name}")
    assert unread == UNREAD.keys()
