"""The HA port over TLS: the same bytes for whom the authority vouches, and none for others."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import ssl
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trocket.common.config import ConfigError
from trocket.store.config import BrokerRole, MessageStoreConfig
from trocket.store.ha.master import CONNECTIONS_MAX, open_ha_listener
from trocket.store.ha.slave import HaSlave
from trocket.store.ha.tls import HANDSHAKE_TIMEOUT_S, TlsError, ha_tls
from trocket.store.ha.wire import encode_report
from trocket.store.services import run_services

from ...kit import TrioClock
from ..support import open_store
from .peers import master_under_test
from .support import Network, Node, caught_up, fill
from .test_master import read_all, served
from .test_replication import assert_same

OURS, OTHERS = trustme.CA(), trustme.CA()
PLAIN: dict[str, object] = {}


@dataclasses.dataclass
class Files:
    """Keys of brokers, the files in a folder."""

    folder: Path

    def of(self, signed_by: trustme.CA, trusts: trustme.CA = OURS) -> dict[str, object]:
        """The keys of a broker whose certificate one authority signed, and which trusts one."""
        number = len(list(self.folder.iterdir()))
        certificate = signed_by.issue_cert("broker-a.example.org")
        paths = [self.folder / f"{number}-{what}.pem" for what in ("cert", "key", "ca")]
        for path, blob in zip(
            paths,
            (certificate.cert_chain_pems[0], certificate.private_key_pem, trusts.cert_pem),
            strict=True,
        ):
            blob.write_to_path(path)
        keys = ("ha_tls_cert_path", "ha_tls_key_path", "ha_tls_trust_cert_path")
        return {"ha_tls_enable": True, **dict(zip(keys, map(str, paths), strict=True))}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def problems(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    """What one side has logged."""
    return [r.getMessage() for r in caplog.records if r.name == f"trocket.store.ha.{name}"]


@pytest.mark.slow
async def test_the_log_comes_over_sockets_byte_for_byte(files, caplog):
    caplog.set_level(logging.INFO)
    async with (
        served(clock=TrioClock(), **files.of(OURS)) as master,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(run_services, master.store)
        slave = open_store(clock=TrioClock(), broker_role=BrokerRole.SLAVE, **files.of(OURS))
        await nursery.start(run_services, slave)
        follower = HaSlave(slave)
        nursery.start_soon(follower.run)
        fill(master.store, 1500)
        follower.set_master(f"127.0.0.1:{master.port}")
        await caught_up(master.store, slave)
        fill(master.store, 300, topic="U")
        await caught_up(master.store, slave)
        assert_same(master.store, slave)
        assert follower.state().problem == ""
        assert len(master.ha.state().slaves) == 1
        nursery.cancel_scope.cancel()


async def test_acknowledgements_and_new_connections_are_as_without_it(files, autojump_clock):
    keys = files.of(OURS)
    async with trio.open_nursery() as nursery:
        network = Network(nursery)
        master = Node(nursery, network, BrokerRole.SYNC_MASTER, **keys)
        slave = Node(nursery, network, BrokerRole.SLAVE, **keys)
        await master.start()
        await slave.start()
        fill(master.store, 30)
        await caught_up(master.store, slave.store)
        network.cut()
        fill(master.store, 30, topic="U")
        await caught_up(master.store, slave.store)
        await trio.sleep(1)
        assert master.store.durability.slaves.acked_offset == master.store.max_physical_offset
        assert_same(master.store, slave.store)
        assert len(network.connects) == 2
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("master_keys", "slave_keys", "master_says", "slave_says"),
    [
        pytest.param(
            (OURS, OURS),
            (OTHERS, OURS),
            "is refused: haTlsTrustCertPath does not trust its certificate",
            "before it sent anything: if it does not trust this broker's certificate",
            id="a slave of another authority",
        ),
        pytest.param(
            (OTHERS, OURS),
            (OURS, OURS),
            "is refused: it ended the TLS handshake",
            "haTlsTrustCertPath does not trust its certificate",
            id="a master of another authority",
        ),
        pytest.param(
            (OURS, OURS), None, "is refused: it does not speak TLS", "closed", id="a plain slave"
        ),
        pytest.param(
            None,
            (OURS, OURS),
            "it speaks TLS, and haTlsEnable is false here",
            "it ended the TLS handshake: it does not speak TLS, or",
            id="a plain master",
        ),
    ],
)
async def test_whom_the_authority_does_not_vouch_for_gets_nothing_and_both_say_so(
    files, autojump_clock, caplog, master_keys, slave_keys, master_says, slave_says
):
    async with trio.open_nursery() as nursery:
        network = Network(nursery)
        on_master = files.of(*master_keys) if master_keys else PLAIN
        on_slave = files.of(*slave_keys) if slave_keys else PLAIN
        master = Node(nursery, network, BrokerRole.ASYNC_MASTER, **on_master)
        slave = Node(nursery, network, BrokerRole.SLAVE, **on_slave)
        await master.start()
        fill(master.store, 30)
        await slave.start()
        await trio.sleep(60)
        assert len(network.connects) > 5  # it goes on trying
        assert slave.store.max_physical_offset == 0
        assert master.ha.state().slaves == []
        assert master.store.durability.slaves.acked_offset == 0
        assert any(master_says in text for text in problems(caplog, "master"))
        assert [slave_says in text for text in problems(caplog, "slave")] == [True]
        assert slave_says in slave.ha.state().problem
        nursery.cancel_scope.cancel()


async def test_a_slave_without_a_certificate_gets_nothing(files, caplog):
    async with served(**files.of(OURS)) as master:
        fill(master.store, 3)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        OURS.configure_trust(context)
        stream = trio.SSLStream(await master.connect(), context)
        await stream.send_all(encode_report(0))
        assert await read_all(stream) == b""
        assert master.ha.state().slaves == []
        assert "is refused: it sent no certificate" in caplog.text


async def test_one_that_says_nothing_is_closed(files, autojump_clock, caplog):
    async with master_under_test(**files.of(OURS)) as master:
        peer = master.connect()
        start_s = trio.current_time()
        assert await peer.is_closed()
        assert trio.current_time() - start_s >= HANDSHAKE_TIMEOUT_S
        assert "no TLS handshake within 5 s" in caplog.text


async def test_those_that_say_nothing_take_places_as_slaves_do(files, caplog):
    async with served(**files.of(OURS)) as master:
        with trio.fail_after(10):
            silent = [await master.connect() for _ in range(CONNECTIONS_MAX)]
            assert await read_all(await master.connect()) == b""
        assert f"{CONNECTIONS_MAX} slaves are connected" in caplog.text
        assert len(silent) == CONNECTIONS_MAX


def issued_for(folder: Path, usage: x509.ObjectIdentifier) -> dict[str, object]:
    """The keys of a broker whose certificate, its own authority, is for one use only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker-a")])
    start, day = datetime.datetime(2020, 1, 1), datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 7, start, start + 36_500 * day)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    return {
        "ha_tls_enable": True,
        "ha_tls_cert_path": str(folder / "cert.pem"),
        "ha_tls_key_path": str(folder / "key.pem"),
        "ha_tls_trust_cert_path": str(folder / "cert.pem"),
    }


@pytest.mark.parametrize(
    ("usage", "refuses"),
    [
        (ExtendedKeyUsageOID.SERVER_AUTH, BrokerRole.ASYNC_MASTER),
        (ExtendedKeyUsageOID.CLIENT_AUTH, BrokerRole.SLAVE),
    ],
)
async def test_a_certificate_counts_for_what_it_says_it_is_for(tmp_path, usage, refuses):
    keys = issued_for(tmp_path, usage)
    refusals: dict[BrokerRole, str] = {}

    async def shake(role: BrokerRole, stream: trio.abc.Stream) -> None:
        tls = ha_tls(MessageStoreConfig(broker_role=role, **keys))
        assert tls is not None
        try:
            await tls.wrap(stream)
        except TlsError as error:
            refusals[role] = str(error)

    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shake, BrokerRole.ASYNC_MASTER, near)
        nursery.start_soon(shake, BrokerRole.SLAVE, far)
    assert "unsuitable certificate purpose" in refusals[refuses]


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE])
@pytest.mark.parametrize("key", ["ha_tls_cert_path", "ha_tls_key_path", "ha_tls_trust_cert_path"])
@pytest.mark.parametrize("text", [None, "", "no PEM"])
def test_a_file_that_cannot_be_used_is_named(files, role, key, text):
    keys = files.of(OURS)
    path = files.folder / "broken.pem"
    if text is not None:
        path.write_text(text)
    name = "haT" + "".join(map(str.capitalize, key.split("_")[1:]))[1:]
    with pytest.raises(ConfigError, match=f"{name}={path}"):
        ha_tls(MessageStoreConfig(broker_role=role, **{**keys, key: str(path)}))


def test_a_key_with_a_password_is_refused_without_a_prompt(files):
    keys = files.of(OURS)
    path = Path(str(keys["ha_tls_key_path"]))
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, secret))
    with pytest.raises(ConfigError, match="only keys without one can be read"):
        ha_tls(MessageStoreConfig(**keys))


def test_keys_that_do_not_belong_together_are_refused(files):
    keys = files.of(OURS) | {"ha_tls_key_path": files.of(OURS)["ha_tls_key_path"]}
    with pytest.raises(ConfigError, match=r"haTlsCertPath=.* haTlsKeyPath=.*"):
        ha_tls(MessageStoreConfig(**keys))


def test_a_port_that_asks_for_certificates_may_be_open_to_all(files, caplog):
    config = MessageStoreConfig(ha_listen_address="0.0.0.0", **files.of(OURS))
    open_ha_listener(config, 0).close()
    assert caplog.text == ""


def test_it_is_off_by_default():
    assert ha_tls(MessageStoreConfig()) is None
