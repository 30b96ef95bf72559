"""GET_BROKER_CONFIG: the keys of the broker and its store, as mqadmin reads them."""

from __future__ import annotations

from trocket.common.config import parse_properties
from trocket.remoting import fastjson

from ...kit import broker_client

GET_CONFIG = 26


async def test_26_shows_the_keys_of_the_broker_and_its_store_sorted() -> None:
    async with broker_client(file_reserved_time=48) as client:
        answer = await client.ask(GET_CONFIG, {})
        entries = parse_properties(answer.body.decode())
        values = {entry.key: entry.value for entry in entries}
        assert (answer.code, answer.remark) == (0, None)
        assert [entry.key for entry in entries] == sorted(values)
        assert (values["brokerName"], values["fileReservedTime"]) == ("b", "48")
        assert (values["flushDiskType"], values["useTLS"]) == ("ASYNC_FLUSH", "false")
        version = fastjson.loads(answer.ext_fields["version"].encode())
        assert version["counter"] == 0


async def test_26_ignores_fields_and_body() -> None:
    async with broker_client() as client:
        right = await client.ask(GET_CONFIG, {})
        wrong = await client.ask(GET_CONFIG, {"key": "brokerName"}, b"{")
        assert (wrong.code, wrong.body) == (0, right.body)


async def test_26_does_not_show_what_is_secret() -> None:
    async with broker_client(metrics_grpc_exporter_header="authorization:token") as client:
        answer = await client.ask(GET_CONFIG, {})
        assert b"metricsGrpcExporterHeader=(hidden)\n" in answer.body
        assert b"token" not in answer.body
