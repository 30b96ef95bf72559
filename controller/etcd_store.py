"""EtcdStore: the state of a group of controllers in etcd.

    <prefix><group>/leader       the controller that leads; the key ends with its lease
    <prefix><group>/sets/<name>  a set, as JSON

A term is the revision at which the leader's key was created. Each write is one transaction that
compares the term and the revision of the set, so that a controller that was deposed writes nothing,
whatever its clock says. A write whose answer was lost is sent again: if it was carried out, the
comparison fails, and the set that is stored is the one that was to be written.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Final

import msgspec
import trio

from .broker_set import BrokerSet
from .etcd_gateway import READ_TIMEOUT_S, EtcdGateway, NotFoundError
from .state_store import (
    NO_REVISION,
    NOTHING,
    VERSION,
    Candidate,
    ConflictError,
    Lease,
    LeaseLostError,
    Stored,
    UnavailableError,
    UnreadableError,
    check_version,
    from_tree,
    to_tree,
)

LEASE_S: Final = 3
"""How long a lost leader keeps the others from leading; etcd's least is 2 with its defaults."""

RENEWAL_S: Final = 0.8
"""Between renewals: two may be lost."""

MARGIN_S: Final = 0.3
"""How much before the lease's end the leader stops: the clocks of two machines run at rates that
differ by less than a thousandth, and a turn of the loop takes some milliseconds."""

RANGE: Final = "/v3/kv/range"
TXN: Final = "/v3/kv/txn"
GRANT: Final = "/v3/lease/grant"
KEEP_ALIVE: Final = "/v3/lease/keepalive"
REVOKE: Final = "/v3/lease/revoke"
WATCH: Final = "/v3/watch"


class EtcdStore:
    """A `StateStore` in etcd; see the module.

    Args:
      prefix: of all keys, with the group: "/trocket/controller/group1/".
      now_s: monotonic time, by which leases end.
    """

    renewal_s: Final = RENEWAL_S

    def __init__(self, gateway: EtcdGateway, prefix: str, *, now_s: Callable[[], float]) -> None:
        self._gateway = gateway
        self._now_s = now_s
        self._leader_key = f"{prefix}leader"
        self._sets = f"{prefix}sets/"
        self._seen = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep connections until cancelled. etcd need not be there yet."""
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            await self._gateway.close()

    async def acquire(self, candidate: Candidate) -> Lease | None:
        """Lead, if no one does."""
        if await self.leader() is not None:
            return None
        asked_s = self._now_s()
        granted = await self._gateway.call(GRANT, {"TTL": LEASE_S})
        token = str(granted.get("ID", ""))
        value = msgspec.json.encode({"name": candidate.name, "address": candidate.address})
        answer = await self._gateway.call(
            TXN,
            {
                "compare": [_compare(self._leader_key, "CREATE", NO_REVISION)],
                "success": [_put(self._leader_key, value, token)],
                "failure": [_range_request(self._leader_key)],
            },
        )
        if answer.get("succeeded"):
            term = _revision_of(answer)
        else:
            kvs = _kvs(answer, 0)
            if not kvs or str(kvs[0].get("lease", "")) != token:  # else the first try's answer
                await self._revoke(token)
                return None
            term = _number(kvs[0].get("create_revision"))
        return Lease(term, asked_s + _ttl_of(granted) - MARGIN_S, token)

    async def renew(self, lease: Lease) -> Lease:
        """Lead on."""
        asked_s = self._now_s()
        try:
            answer = await self._gateway.call(KEEP_ALIVE, {"ID": lease.token})
        except NotFoundError as error:
            raise LeaseLostError("the lease has ended") from error
        result = answer.get("result")
        ttl_s = _ttl_of(result) if isinstance(result, dict) else 0
        if ttl_s <= 0:
            raise LeaseLostError("the lease has ended")
        return lease._replace(until_s=asked_s + ttl_s - MARGIN_S)

    async def release(self, lease: Lease) -> None:
        """End the lease, and with it the leader's key."""
        await self._revoke(lease.token)

    async def _revoke(self, token: str) -> None:
        try:
            await self._gateway.call(REVOKE, {"ID": token})
        except NotFoundError:
            return

    async def leader(self) -> Candidate | None:
        """The controller that leads."""
        answer = await self._gateway.call(RANGE, _range(self._leader_key))
        self._seen = _revision_of(answer)
        kvs = _listed(answer.get("kvs"))
        if not kvs:
            return None
        tree = _tree_of(kvs[0])
        return Candidate(str(tree.get("name", "")), str(tree.get("address", "")))

    async def wait_for_change(self) -> None:
        """Wait until the leader's key changes, or may have."""
        request = {"key": _coded(self._leader_key), "start_revision": str(self._seen + 1)}
        await self._gateway.wait_for(WATCH, {"create_request": request}, _is_change)

    async def read(self) -> dict[str, Stored]:
        """All sets."""
        first = self._sets.encode()
        last = first[:-1] + bytes([first[-1] + 1])
        request = {"key": _coded(self._sets), "range_end": b64encode(last).decode()}
        answer = await self._gateway.call(RANGE, request, READ_TIMEOUT_S)
        sets: dict[str, Stored] = {}
        for kv in _listed(answer.get("kvs")):
            stored = self._stored(kv)
            if stored.broker_set is not None:
                sets[stored.broker_set.broker_name] = stored
        return sets

    async def read_set(self, name: str) -> Stored:
        """One set."""
        answer = await self._gateway.call(RANGE, _range(self._sets + name))
        kvs = _listed(answer.get("kvs"))
        return self._stored(kvs[0]) if kvs else NOTHING

    async def swap(self, lease: Lease, name: str, revision: int, after: BrokerSet | None) -> int:
        """Replace a set."""
        key = self._sets + name
        value = b"" if after is None else _value_of(after)
        change = _delete(key) if after is None else _put(key, value)
        answer = await self._gateway.call(
            TXN,
            {
                "compare": [
                    _compare(self._leader_key, "CREATE", lease.term),
                    _compare(key, "MOD", revision),
                ],
                "success": [change],
                "failure": [_range_request(self._leader_key), _range_request(key)],
            },
        )
        if answer.get("succeeded"):
            return NO_REVISION if after is None else _revision_of(answer)
        leaders, kvs = _kvs(answer, 0), _kvs(answer, 1)
        if not leaders or _number(leaders[0].get("create_revision")) != lease.term:
            raise LeaseLostError("another controller leads")
        if not kvs and after is None and revision != NO_REVISION:
            return NO_REVISION
        if kvs and after is not None and _bytes_of(kvs[0].get("value")) == value:
            return _number(kvs[0].get("mod_revision"))
        raise ConflictError(f"the set {name} was changed meanwhile")

    def _stored(self, kv: dict[str, Any]) -> Stored:
        key = _bytes_of(kv.get("key")).decode("utf-8", "replace")
        tree = _tree_of(kv)
        check_version(tree, f"{key} in etcd")
        del tree["version"]
        found = from_tree(tree)
        if key != self._sets + found.broker_name:
            raise UnreadableError(f"{key} in etcd has a set of the name {found.broker_name!r}")
        return Stored(found, _number(kv.get("mod_revision")))


def _is_change(answer: object) -> bool:
    """Whether an answer to a watch is more than that it has begun."""
    result = answer.get("result") if isinstance(answer, dict) else None
    return not isinstance(result, dict) or bool(result.get("events") or result.get("canceled"))


def _value_of(broker_set: BrokerSet) -> bytes:
    return msgspec.json.encode({"version": VERSION, **to_tree(broker_set)})


# etcd's JSON


def _coded(key: str) -> str:
    return b64encode(key.encode()).decode()


def _range(key: str) -> dict[str, Any]:
    return {"key": _coded(key)}


def _range_request(key: str) -> dict[str, Any]:
    return {"request_range": _range(key)}


def _put(key: str, value: bytes, lease: str = "0") -> dict[str, Any]:
    coded = b64encode(value).decode()
    return {"request_put": {"key": _coded(key), "value": coded, "lease": lease}}


def _delete(key: str) -> dict[str, Any]:
    return {"request_delete_range": {"key": _coded(key)}}


def _compare(key: str, target: str, revision: int) -> dict[str, Any]:
    field = f"{target.lower()}_revision"
    return {"key": _coded(key), "target": target, "result": "EQUAL", field: str(revision)}


def _kvs(answer: dict[str, Any], place: int) -> list[dict[str, Any]]:
    """The keys that a request of a transaction has read."""
    responses = _listed(answer.get("responses"))
    if place >= len(responses):
        return []
    response = responses[place].get("response_range")
    return _listed(response.get("kvs")) if isinstance(response, dict) else []


def _listed(value: object) -> list[dict[str, Any]]:
    """The objects of a list; etcd leaves an empty one out."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _tree_of(kv: dict[str, Any]) -> dict[str, Any]:
    try:
        tree = msgspec.json.decode(_bytes_of(kv.get("value")))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(f"a value in etcd is not JSON: {error}") from error
    if not isinstance(tree, dict):
        raise UnreadableError("a value in etcd is no object")
    return tree


def _bytes_of(value: object) -> bytes:
    try:
        return b64decode(value, validate=True) if isinstance(value, str) else b""
    except ValueError as error:
        raise UnavailableError(f"etcd's answer has no Base64: {error}") from error


def _revision_of(answer: dict[str, Any]) -> int:
    header = answer.get("header")
    return _number(header.get("revision") if isinstance(header, dict) else None)


def _ttl_of(answer: dict[str, Any]) -> int:
    return min(_number(answer.get("TTL")), LEASE_S)


def _number(value: object) -> int:
    """A 64-bit number, which is a string; etcd leaves 0 out."""
    text = "0" if value is None else str(value)
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise UnavailableError(f"etcd's answer has {text[:40]!r} where a number belongs")
    return int(text)
