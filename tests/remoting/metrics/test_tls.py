"""Metrics and health over TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trio
import trustme

from trocket.common.config import ConfigError
from trocket.remoting.metrics.http_server import HttpServer
from trocket.remoting.server import open_listener
from trocket.remoting.tls_config import TlsConfig, TlsMode, check_metrics_tls
from trocket.remoting.tls_server import ServerTls

from .test_http_server import get, handle

AUTHORITY = trustme.CA()


@pytest.fixture
def tls(tmp_path: Path) -> ServerTls:
    issued = AUTHORITY.issue_cert("127.0.0.1")
    path = tmp_path / "both.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(str(path))
    return ServerTls(TlsConfig(server_cert_path=str(path), server_key_path=str(path)))


async def ask(stream: trio.abc.Stream, request: bytes) -> bytes:
    async with stream:
        with trio.fail_after(10):
            await stream.send_all(request)
            data = b""
            while piece := bytes(await stream.receive_some(65_536)):
                data += piece
            return data


async def test_readers_are_served_by_tls_only(
    tls: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    with open_listener("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(HttpServer(handle, tls=tls).serve, listener)
            for request, status in ((get("/a"), b"200"), (get("/", method="POST"), b"405")):
                stream = await trio.open_ssl_over_tcp_stream(
                    "127.0.0.1", port, ssl_context=context, https_compatible=True
                )
                assert (await ask(stream, request)).split()[1] == status
            assert b"200" not in await ask(await trio.open_tcp_stream("127.0.0.1", port), get("/"))
            nursery.cancel_scope.cancel()
    assert "it does not speak TLS, but HTTP" in caplog.text


def test_tls_that_is_switched_off_contradicts_it() -> None:
    with pytest.raises(ConfigError, match=r"metricsTlsEnable=true needs tls.server.mode="):
        check_metrics_tls(True, TlsMode.disabled)
    check_metrics_tls(True, TlsMode.permissive)
