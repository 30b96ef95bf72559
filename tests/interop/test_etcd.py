"""The controllers' state in a real etcd: compare-and-swap, leases, lost members, accounts, TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio
import trustme

from trocket.controller.broker_set import BrokerSet, Replica
from trocket.controller.etcd_gateway import Account, EtcdGateway
from trocket.controller.etcd_store import EtcdStore
from trocket.controller.state_store import (
    NO_REVISION,
    NOTHING,
    Candidate,
    ConflictError,
    LeaseLostError,
    UnavailableError,
)
from trocket.interop.etcd import EtcdCluster, etcd_program

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(etcd_program() is None, reason="there is no etcd (TROCKET_ETCD)"),
]

BUSY_S = 1.5
ONE, OTHER = Candidate("n0", "10.0.0.1:9878"), Candidate("n1", "10.0.0.2:9878")
SET = BrokerSet(
    cluster_name="C",
    broker_name="a",
    replicas={1: Replica("h:1", "code 1"), 2: Replica("h:2")},
    in_sync=frozenset({1, 2}),
    in_sync_epoch=2,
    master_id=1,
    master_epoch=1,
)


@contextmanager
def etcd(folder: Path, count: int = 3) -> Iterator[EtcdCluster]:
    with EtcdCluster(folder, count=count) as cluster:
        cluster.start()
        yield cluster


@asynccontextmanager
async def store_of(
    cluster: EtcdCluster, account: Account | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[EtcdStore]:
    # The machine is busy; how short the limit is by default has its own tests.
    gateway = EtcdGateway(
        cluster.endpoints, account=account or Account(), tls=tls, timeout_s=BUSY_S
    )
    store = EtcdStore(gateway, "/trocket/controller/group1/", now_s=trio.current_time)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store
        nursery.cancel_scope.cancel()


async def use(store: EtcdStore) -> None:
    """All that a leader does with a store."""
    lease = await store.acquire(ONE)
    assert lease is not None
    assert lease.until_s > trio.current_time() + 1
    assert await store.leader() == ONE
    assert await store.acquire(OTHER) is None
    assert await store.read() == {}
    first = await store.swap(lease, "a", NO_REVISION, SET)
    assert await store.read_set("a") == (SET, first)
    with pytest.raises(ConflictError):
        await store.swap(lease, "a", first + 1, SET.with_master(2))
    second = await store.swap(lease, "a", first, SET.with_master(2))
    assert await store.read() == {"a": (SET.with_master(2), second)}
    lease = await store.renew(lease)
    assert await store.swap(lease, "a", second, None) == NO_REVISION
    assert await store.read_set("a") == NOTHING
    await store.release(lease)
    assert await store.leader() is None
    with pytest.raises(LeaseLostError):
        await store.renew(lease)
    with pytest.raises(LeaseLostError):
        await store.swap(lease, "a", NO_REVISION, SET)


async def test_a_leader_uses_all_of_it(tmp_path: Path) -> None:
    with etcd(tmp_path, count=1) as cluster:
        async with store_of(cluster) as store:
            await use(store)


async def test_a_lost_lease_ends_and_the_next_leader_learns_it(tmp_path: Path) -> None:
    with etcd(tmp_path, count=1) as cluster:
        async with store_of(cluster) as first, store_of(cluster) as second:
            lease = await first.acquire(ONE)
            assert lease is not None
            assert await second.leader() == ONE
            with trio.fail_after(10):
                await second.wait_for_change()
            assert trio.current_time() > lease.until_s
            later = await second.acquire(OTHER)
            assert later is not None
            assert later.term > lease.term
            with pytest.raises(LeaseLostError):
                await first.swap(lease, "a", NO_REVISION, SET)


@pytest.mark.parametrize("fault", ["kill", "freeze"])
async def test_a_set_is_changed_while_etcds_leader_is_lost(tmp_path: Path, fault: str) -> None:
    with etcd(tmp_path) as cluster:
        async with store_of(cluster) as store:
            lease = await store.acquire(ONE)
            assert lease is not None
            revision = await store.swap(lease, "a", NO_REVISION, SET)
            getattr(cluster.leader(), fault)()
            each = SET
            with trio.fail_after(15):  # etcd elects, too
                while each.in_sync_epoch < SET.in_sync_epoch + 5:
                    after = each.with_in_sync(frozenset({1, 2}))
                    try:
                        revision = await store.swap(lease, "a", revision, after)
                    except UnavailableError:
                        stored = None
                        while stored is None:
                            try:
                                stored = await store.read_set("a")
                            except UnavailableError:
                                await trio.sleep(0.1)
                        assert stored.broker_set in (each, after)
                        each, revision = stored.broker_set or SET, stored.revision
                    except LeaseLostError:
                        renewed = await store.acquire(ONE)
                        lease = renewed or lease
                    else:
                        each = after


async def test_without_a_majority_nothing_is_read_or_written(tmp_path: Path) -> None:
    with etcd(tmp_path) as cluster:
        async with store_of(cluster) as store:
            lease = await store.acquire(ONE)
            assert lease is not None
            revision = await store.swap(lease, "a", NO_REVISION, SET)
            for member in cluster.members[1:]:
                member.kill()
            for call in (
                lambda: store.read_set("a"),
                lambda: store.swap(lease, "a", revision, SET.with_master(2)),
                lambda: store.renew(lease),
            ):
                with pytest.raises(UnavailableError), trio.fail_after(4 * BUSY_S):
                    await call()


async def test_a_user_with_a_password(tmp_path: Path) -> None:
    with etcd(tmp_path, count=1) as cluster:
        cluster.call("/v3/auth/user/add", {"name": "root", "password": "secret"})
        cluster.call("/v3/auth/role/add", {"name": "root"})
        cluster.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        cluster.call("/v3/auth/enable", {})
        async with store_of(cluster, Account("root", "secret")) as store:
            await use(store)
        async with store_of(cluster, Account("root", "wrong")) as store:
            with pytest.raises(UnavailableError, match="authentication failed"):
                await store.acquire(ONE)
        async with store_of(cluster) as store:
            with pytest.raises(UnavailableError):
                await store.acquire(ONE)


async def test_tls_with_a_client_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    tls = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    options = (
        "--cert-file", str(tmp_path / "cert.pem"), "--key-file", str(tmp_path / "key.pem"),
        "--client-cert-auth", "--trusted-ca-file", str(tmp_path / "ca.pem"),
    )  # fmt: skip
    with EtcdCluster(tmp_path / "etcd", count=1, options=options, tls=tls) as cluster:
        cluster.start()
        async with store_of(cluster, tls=tls) as store:
            await use(store)
        async with store_of(cluster) as store:  # of an authority that is not known
            with pytest.raises(UnavailableError):
                await store.acquire(ONE)
