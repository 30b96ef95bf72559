"""etcd's JSON gateway in memory, after its documentation: one cluster behind several endpoints."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import h11
import trio
from trio.testing import memory_stream_pair

from trocket.controller.etcd_gateway import Account, EtcdGateway
from trocket.controller.etcd_store import EtcdStore

ENDPOINTS = ("http://e1:2379", "http://e2:2379", "http://e3:2379")
PREFIX = "/trocket/controller/group1/"


@dataclass
class Pair:
    value: bytes
    create: int
    mod: int
    lease: str


class Refused(Exception):
    """An error of gRPC: its status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class FakeEtcd:
    """A cluster of three members; time is trio's.

    Attributes:
      down: hosts that refuse connections.
      frozen: hosts that accept and say nothing.
      lose_answers: requests that are carried out, and whose connections end then; for each path.
      requests: the paths that were asked for.
    """

    def __init__(self, account: Account | None = None) -> None:
        self.pairs: dict[bytes, Pair] = {}
        self.revision = 1
        self.leases: dict[str, tuple[int, float]] = {}
        self.down: set[str] = set()
        self.frozen: set[str] = set()
        self.lose_answers: list[str] = []
        self.requests: list[str] = []
        self.account = account
        self.tokens: set[str] = set()
        self._changed = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._expire_leases)
            task_status.started()

    def store(self, now_s: Callable[[], float] = trio.current_time) -> EtcdStore:
        account = self.account or Account()
        gateway = EtcdGateway(ENDPOINTS, account=account, open_stream=self.open_stream)
        return EtcdStore(gateway, PREFIX, now_s=now_s)

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        if host in self.down or self._nursery is None:
            raise ConnectionRefusedError(host)
        ours, theirs = memory_stream_pair()
        self._nursery.start_soon(self._serve, theirs, host)
        return ours

    async def _serve(self, stream: trio.abc.Stream, host: str) -> None:
        http = h11.Connection(h11.SERVER)
        path, body, token = "", b"", ""
        try:
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    http.receive_data(bytes(await stream.receive_some(65_536)))
                elif isinstance(event, h11.Request):
                    path, body = event.target.decode(), b""
                    token = dict(event.headers).get(b"authorization", b"").decode()
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    if not await self._answer(stream, http, host, path, body, token):
                        return
                    http.start_next_cycle()
                else:
                    return
        except (trio.BrokenResourceError, h11.RemoteProtocolError):
            return
        finally:
            await trio.aclose_forcefully(stream)

    async def _answer(
        self, stream: trio.abc.Stream, http: h11.Connection, host: str, path: str, body: bytes,
        token: str,
    ) -> bool:  # fmt: skip
        if host in self.frozen:
            await trio.sleep_forever()
        if host in self.down:
            return False
        self.requests.append(path)
        request = json.loads(body)
        try:
            is_open = self.account is None or path == "/v3/auth/authenticate"
            if not is_open and token not in self.tokens:
                raise Refused(16, "etcdserver: invalid auth token")
            if path == "/v3/watch":
                await self._watch(stream, http, request["create_request"])
                return False
            status, answer = 200, await HANDLERS[path](self, request)
        except Refused as error:
            status, answer = 400, {"error": str(error), "message": str(error), "code": error.status}
        if path in self.lose_answers:
            self.lose_answers.remove(path)
            return False
        text = json.dumps(answer).encode()
        await _send(stream, http, status, text)
        return True

    def _header(self) -> dict[str, str]:
        return {"cluster_id": "1", "member_id": "1", "revision": str(self.revision)}

    async def range(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"header": self._header(), **self._range(request)}

    def _range(self, request: dict[str, Any]) -> dict[str, Any]:
        first = b64decode(request["key"])
        last = b64decode(request.get("range_end", ""))
        kvs = [
            {
                "key": b64encode(key).decode(),
                "create_revision": str(pair.create),
                "mod_revision": str(pair.mod),
                "version": "1",
                "value": b64encode(pair.value).decode(),
                **({"lease": pair.lease} if pair.lease != "0" else {}),
            }
            for key, pair in sorted(self.pairs.items())
            if key == first or (last and first <= key < last)
        ]
        return {"kvs": kvs, "count": str(len(kvs))} if kvs else {}

    async def txn(self, request: dict[str, Any]) -> dict[str, Any]:
        holds = all(self._holds(each) for each in request["compare"])
        changes = request["success" if holds else "failure"]
        if any("request_range" not in each for each in changes):
            self.revision += 1
        responses = [self._change(each) for each in changes]
        answer = {"header": self._header(), "responses": responses}
        self._notify()
        return {**answer, "succeeded": True} if holds else answer

    def _holds(self, compare: dict[str, Any]) -> bool:
        pair = self.pairs.get(b64decode(compare["key"]))
        assert compare["result"] == "EQUAL"
        if compare["target"] == "CREATE":
            return (0 if pair is None else pair.create) == int(compare["create_revision"])
        return (0 if pair is None else pair.mod) == int(compare["mod_revision"])

    def _change(self, change: dict[str, Any]) -> dict[str, Any]:
        ((kind, request),) = change.items()
        if kind == "request_range":
            return {"response_range": {"header": self._header(), **self._range(request)}}
        key = b64decode(request["key"])
        if kind == "request_put":
            lease = request.get("lease", "0")
            if lease != "0" and lease not in self.leases:
                raise Refused(5, "etcdserver: requested lease not found")
            old = self.pairs.get(key)
            create = self.revision if old is None else old.create
            self.pairs[key] = Pair(b64decode(request["value"]), create, self.revision, lease)
            return {"response_put": {"header": self._header()}}
        self.pairs.pop(key, None)
        return {"response_delete_range": {"header": self._header(), "deleted": "1"}}

    async def grant(self, request: dict[str, Any]) -> dict[str, Any]:
        token = str(7_587_000_000_000 + len(self.requests))
        ttl = max(int(request["TTL"]), 2)
        self.leases[token] = (ttl, trio.current_time() + ttl)
        return {"header": self._header(), "ID": token, "TTL": str(ttl)}

    async def keep_alive(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self.leases.get(request["ID"])
        if found is None:
            return {"result": {"header": self._header(), "ID": request["ID"]}}
        self.leases[request["ID"]] = (found[0], trio.current_time() + found[0])
        result = {"header": self._header(), "ID": request["ID"], "TTL": str(found[0])}
        return {"result": result}

    async def revoke(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["ID"] not in self.leases:
            raise Refused(5, "etcdserver: requested lease not found")
        self._end(request["ID"])
        return {"header": self._header()}

    async def authenticate(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.account != Account(request["name"], request["password"]):
            raise Refused(3, "etcdserver: authentication failed, invalid user ID or password")
        token = f"token.{len(self.requests)}"
        self.tokens.add(token)
        return {"header": self._header(), "token": token}

    def _end(self, token: str) -> None:
        del self.leases[token]
        self.revision += 1
        for key in [key for key, pair in self.pairs.items() if pair.lease == token]:
            del self.pairs[key]
        self._notify()

    async def _expire_leases(self) -> None:
        while True:
            await trio.sleep(0.1)
            for token in [
                token for token, (_, end_s) in self.leases.items() if end_s <= trio.current_time()
            ]:
                self._end(token)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _watch(
        self, stream: trio.abc.Stream, http: h11.Connection, request: dict[str, Any]
    ) -> None:
        key, start = b64decode(request["key"]), int(request["start_revision"])
        headers = [("Transfer-Encoding", "chunked"), ("Content-Type", "application/json")]
        await stream.send_all(http.send(h11.Response(status_code=200, headers=headers)) or b"")
        created = {"result": {"header": self._header(), "created": True}}
        await self._line(stream, http, created)
        before = self.pairs.get(key)
        while True:
            if self.pairs.get(key) is not before or (before is not None and before.mod >= start):
                event = {"result": {"header": self._header(), "events": [{"type": "DELETE"}]}}
                await self._line(stream, http, event)
                before = self.pairs.get(key)
                start = self.revision + 1
            await self._changed.wait()

    @staticmethod
    async def _line(stream: trio.abc.Stream, http: h11.Connection, answer: object) -> None:
        data = json.dumps(answer).encode() + b"\n"
        await stream.send_all(http.send(h11.Data(data=data)) or b"")


async def _send(stream: trio.abc.Stream, http: h11.Connection, status: int, text: bytes) -> None:
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(text)))]
    data = http.send(h11.Response(status_code=status, headers=headers)) or b""
    data += http.send(h11.Data(data=text)) or b""
    data += http.send(h11.EndOfMessage()) or b""
    await stream.send_all(data)


HANDLERS: dict[str, Callable[[FakeEtcd, dict[str, Any]], Awaitable[dict[str, Any]]]] = {
    "/v3/kv/range": FakeEtcd.range,
    "/v3/kv/txn": FakeEtcd.txn,
    "/v3/lease/grant": FakeEtcd.grant,
    "/v3/lease/keepalive": FakeEtcd.keep_alive,
    "/v3/lease/revoke": FakeEtcd.revoke,
    "/v3/auth/authenticate": FakeEtcd.authenticate,
}
