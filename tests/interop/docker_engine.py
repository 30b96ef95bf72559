"""A stand-in for a Docker engine: its HTTP API on a Unix socket, as far as the harness uses it.

It notes each call. What would run in a container is played by a thread that answers on the
published ports: a name server that knows one broker, and a broker.
"""

from __future__ import annotations

import contextlib
import json
import re
import socketserver
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

GET_ROUTEINFO_BY_TOPIC = 105
SIGKILLED, SIGTERMED = 137, 143


@dataclass
class Call:
    """One request: "POST /containers/x/start", its query and its body."""

    what: str
    query: dict[str, str]
    body: Any


@dataclass
class Container:
    """What was asked for, and what became of it."""

    name: str
    asked: dict[str, Any]
    status: str = "created"
    exit_code: int = 0
    servers: list[socketserver.BaseServer] = field(default_factory=list)

    @property
    def ports(self) -> list[int]:
        bindings = self.asked["HostConfig"]["PortBindings"]
        return [int(binding["HostPort"]) for some in bindings.values() for binding in some]


class FakeEngine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Use it as a context manager.

    Attributes:
      calls: in their order.
      has_image: whether the image need not be pulled.
      breaks_down: containers end as soon as they are started, saying "no such class".
      deaf: a broker does not heed SIGTERM.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.path = folder / "docker.sock"
        super().__init__(str(self.path), EngineHandler)
        self.url = f"unix://{self.path}"
        self.calls: list[Call] = []
        self.containers: dict[str, Container] = {}
        self.networks: set[str] = set()
        self.has_image = True
        self.breaks_down = False
        self.deaf = False
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> FakeEngine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for container in self.containers.values():
            self.end(container, 0)
        self.shutdown()
        self._thread.join()
        self.server_close()

    def wait_until_empty(self, timeout_s: float) -> None:
        """Wait until there is no container and no network."""
        deadline_s = time.monotonic() + timeout_s
        pause = threading.Event()
        while self.containers or self.networks:
            assert time.monotonic() < deadline_s, (self.containers, self.networks)
            pause.wait(0.02)

    def start(self, container: Container) -> None:
        if self.breaks_down:
            container.status, container.exit_code = "exited", 1
            return
        brokers = [other for other in self.containers.values() if "broker" in other.name]
        broker_address = f"127.0.0.1:{brokers[0].ports[0]}"
        for port in container.ports:
            server = PeerServer(("127.0.0.1", port), PeerHandler)
            server.broker_address = broker_address
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            container.servers.append(server)
        container.status = "running"

    def end(self, container: Container, exit_code: int) -> None:
        for server in container.servers:
            server.shutdown()
            server.server_close()
        container.servers.clear()
        if container.status == "running":
            container.status, container.exit_code = "exited", exit_code


class EngineHandler(BaseHTTPRequestHandler):
    """One connection of the docker package."""

    protocol_version = "HTTP/1.1"
    server: FakeEngine

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        pass

    def address_string(self) -> str:
        return "unix"

    def do(self) -> None:
        url = urlsplit(self.path)
        path = re.sub(r"^/v[\d.]+", "", unquote(url.path))
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        size = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(size)) if size else None
        self.server.calls.append(Call(f"{self.command} {path}", query, body))
        answer = getattr(self, "on_" + path.split("/")[1])
        code, content = answer(self.command, path.split("/")[2:], query, body)
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        if code != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if code != 204:
            self.wfile.write(data)

    do_GET = do_POST = do_DELETE = do

    def on__ping(self, *_: object) -> tuple[int, Any]:
        return 200, b"OK"

    def on_version(self, *_: object) -> tuple[int, Any]:
        return 200, {"ApiVersion": "1.43"}

    def on_images(self, method: str, path: list[str], *_: object) -> tuple[int, Any]:
        if path == ["create"]:
            self.server.has_image = True
            return 200, {"status": "Pull complete"}
        if not self.server.has_image:
            return 404, {"message": "no such image"}
        return 200, {"Id": "sha256:0", "RepoTags": []}

    def on_networks(
        self, method: str, path: list[str], query: dict[str, str], body: Any
    ) -> tuple[int, Any]:
        if path == ["create"]:
            self.server.networks.add(body["Name"])
            return 201, {"Id": body["Name"]}
        if path[0] not in self.server.networks:
            return 404, {"message": "no such network"}
        if method == "DELETE":
            self.server.networks.remove(path[0])
            return 204, b""
        return 200, {"Id": path[0], "Name": path[0]}

    def on_containers(
        self, method: str, path: list[str], query: dict[str, str], body: Any
    ) -> tuple[int, Any]:
        engine = self.server
        if path == ["create"]:
            engine.containers[query["name"]] = Container(query["name"], body)
            return 201, {"Id": query["name"]}
        container = engine.containers.get(path[0])
        if container is None:
            return 404, {"message": "no such container"}
        match path[1:]:
            case []:
                engine.end(container, SIGKILLED)
                del engine.containers[container.name]
            case ["json"]:
                pid = 4_000_000 + len(container.name)
                state = {"Status": container.status, "ExitCode": container.exit_code, "Pid": pid}
                about = {"Id": container.name, "Name": f"/{container.name}", "State": state}
                return 200, {**about, "Config": {"Tty": False}}
            case ["start"]:
                engine.start(container)
            case ["stop"]:
                engine.end(container, SIGKILLED if engine.deaf else SIGTERMED)
            case ["kill"]:
                engine.end(container, SIGKILLED)
            case ["wait"]:
                return 200, {"StatusCode": container.exit_code}
            case ["logs"]:
                line = b"no such class\n"
                return 200, struct.pack(">BxxxI", 1, len(line)) + line
        return 204, b""


class PeerServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens where a container's port is published."""

    daemon_threads = True
    allow_reuse_address = True
    broker_address = ""


class PeerHandler(socketserver.StreamRequestHandler):
    """Answers each request with success, and the one for a route with a route."""

    server: PeerServer

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while head := self.rfile.read(8):
                length, mark = struct.unpack(">ii", head)
                header = json.loads(self.rfile.read(length - 4)[: mark & 0xFFFFFF])
                body = b""
                if header["code"] == GET_ROUTEINFO_BY_TOPIC:
                    addresses = {"0": self.server.broker_address}
                    broker = {"brokerName": "broker-a", "brokerAddrs": addresses}
                    body = json.dumps({"brokerDatas": [broker]}).encode()
                answer = json.dumps({"code": 0, "flag": 1, "opaque": header["opaque"]}).encode()
                lengths = struct.pack(">ii", 4 + len(answer) + len(body), len(answer))
                self.wfile.write(lengths + answer + body)
