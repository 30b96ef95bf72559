"""The relay: forwarding, faults, and the addresses given to clients."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from trocket.blocking import Client, Message, Producer
from trocket.client.errors import ClientError
from trocket.interop.java_peer import JavaPeer
from trocket.interop.ports import free_port
from trocket.interop.process import PeerError
from trocket.interop.relay import ClusterRelay, Faults, Relay
from trocket.remoting.bodies import ClusterInfo, TopicRouteData
from trocket.remoting.codec import RemotingCommand, decode_frame, encode
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker
from trocket.testing.recording.frame_stream import SeenFrame

WAIT_S = 30.0
BODIES = [f"message {number}".encode() for number in range(20)]


class Seen:
    """The frames that a relay reported; may be waited for."""

    def __init__(self) -> None:
        self.frames: list[SeenFrame] = []
        self._changed = threading.Condition()

    def __call__(self, frame: SeenFrame) -> None:
        with self._changed:
            self.frames.append(frame)
            self._changed.notify_all()

    def wait(self, ready: Callable[[list[SeenFrame]], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: ready(self.frames), WAIT_S), self.frames

    def bytes_of(self, to_server: bool) -> bytes:
        return b"".join(frame.data for frame in self.frames if frame.to_server is to_server)


class Echo:
    """A server of one connection at a time that sends back what it gets, and keeps it."""

    def __init__(self) -> None:
        self.received = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                while data := connection.recv(65536):
                    self.received += data
                    connection.sendall(data)

    def __enter__(self) -> Echo:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def opened(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := connection.recv(65536)):
        data += more
    return data


def request(opaque: int, body: bytes = b"") -> bytes:
    return encode(RemotingCommand(RequestCode.HEART_BEAT, body=body, opaque=opaque))


# ---- bytes ---------------------------------------------------------------------------------------


def test_all_bytes_pass_and_all_are_told_of() -> None:
    stream = request(1) + request(2, b"x" * 200_000) + request(3)
    seen = Seen()
    with Echo() as echo, Relay(echo.address, on_frame=seen) as relay:
        with opened(relay.address) as connection:
            connection.sendall(stream)
            connection.shutdown(socket.SHUT_WR)
            assert received(connection, len(stream) + 1) == stream
        assert echo.received == stream
        seen.wait(lambda frames: len(frames) == 6)
    assert seen.bytes_of(True) == seen.bytes_of(False) == stream
    assert [frame.offset for frame in seen.frames if frame.to_server] == [
        0,
        len(request(1)),
        len(stream) - len(request(3)),
    ]
    assert {frame.server for frame in seen.frames} == {echo.address}


def test_bytes_that_are_no_frames_pass_too() -> None:
    stream = request(1) + b"GET / HTTP/1.1\r\n\r\n"
    seen = Seen()
    with (
        Echo() as echo,
        Relay(echo.address, on_frame=seen) as relay,
        opened(relay.address) as connection,
    ):
        connection.sendall(stream)
        assert received(connection, len(stream)) == stream
    kinds = [(frame.is_frame, frame.data) for frame in seen.frames if frame.to_server]
    assert kinds[0] == (True, request(1))
    assert not any(is_frame for is_frame, _ in kinds[1:])
    assert b"".join(data for _, data in kinds[1:]) == b"GET / HTTP/1.1\r\n\r\n"


def test_a_frame_that_was_not_complete_is_told_of_when_the_connection_ends() -> None:
    seen = Seen()
    with Echo() as echo, Relay(echo.address, on_frame=seen) as relay:
        with opened(relay.address) as connection:
            connection.sendall(request(1)[:20])
            assert received(connection, 20) == request(1)[:20]
        seen.wait(lambda frames: any(frame.to_server for frame in frames))
    (found,) = [frame for frame in seen.frames if frame.to_server]
    assert (found.data, found.is_frame) == (request(1)[:20], False)


@pytest.mark.slow
def test_a_delay_makes_bytes_late_in_both_directions_but_not_few() -> None:
    """A hundred requests one after the other take one delay, not a hundred."""
    faults = Faults(delay_s=0.5, jitter_s=0.02)
    with (
        Echo() as echo,
        Relay(echo.address, faults=faults) as relay,
        opened(relay.address) as connection,
    ):
        began_s = time.monotonic()
        frames = [request(number) for number in range(100)]
        for frame in frames:
            connection.sendall(frame)
        assert received(connection, sum(map(len, frames))) == b"".join(frames)
        assert 1.0 <= time.monotonic() - began_s < 10
        faults.delay_s = faults.jitter_s = 0.0
        began_s = time.monotonic()
        connection.sendall(frames[0])
        assert received(connection, len(frames[0])) == frames[0]
        assert time.monotonic() - began_s < 1.0


def test_a_seed_gives_the_same_jitter_again() -> None:
    first, second = (Faults(jitter_s=1.0, seed=7) for _ in range(2))
    delays = [first.next_delay_s() for _ in range(5)]
    assert delays == [second.next_delay_s() for _ in range(5)]
    assert len(set(delays)) == 5
    assert "seed=7" in repr(first)


def test_bytes_are_split() -> None:
    faults = Faults(split_bytes=10, split_pause_s=0.002)
    stream = request(1)
    with (
        Echo() as echo,
        Relay(echo.address, faults=faults) as relay,
        opened(relay.address) as connection,
    ):
        connection.sendall(stream)
        first = connection.recv(65536)
        assert len(first) <= 20  # two pieces may have met
        assert first + received(connection, len(stream) - len(first)) == stream


@pytest.mark.slow
def test_nothing_passes_while_it_is_held() -> None:
    faults = Faults()
    with (
        Echo() as echo,
        Relay(echo.address, faults=faults) as relay,
        opened(relay.address) as connection,
    ):
        faults.hold()
        connection.sendall(request(1))
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert echo.received == b""
        connection.settimeout(WAIT_S)
        faults.release()
        assert received(connection, len(request(1))) == request(1)


def test_a_cut_closes_all_connections_and_new_ones_work() -> None:
    faults = Faults()
    with Echo() as echo, Relay(echo.address, faults=faults) as relay:
        with opened(relay.address) as connection:
            connection.sendall(request(1))
            assert received(connection, len(request(1))) == request(1)
            faults.cut()
            with contextlib.suppress(ConnectionError):
                assert connection.recv(1) == b""
        assert faults.cut_count == 1
        with opened(relay.address) as connection:
            connection.sendall(request(2))
            assert received(connection, len(request(2))) == request(2)


@pytest.mark.parametrize("byte_count", [0, 1, 30, 1_000_000])
def test_a_frame_is_cut_in_its_middle(byte_count: int) -> None:
    faults = Faults()
    with Echo() as echo, Relay(echo.address, faults=faults) as relay:
        with opened(relay.address) as connection:
            connection.sendall(request(1))
            assert received(connection, len(request(1))) == request(1)
            faults.cut_next(byte_count, to_server=False)
            connection.sendall(request(2) + request(3))
            with contextlib.suppress(ConnectionError):
                rest = received(connection, 1000)
                assert rest == request(2)[: min(byte_count, len(request(2)) - 1)]
        assert faults.cut_count == 1


@pytest.mark.parametrize("byte_count", [0, 1, 30])
def test_bytes_that_are_no_frames_are_cut_too(byte_count: int) -> None:
    faults = Faults()
    stream = bytes(100)
    with Echo() as echo, Relay(echo.address, faults=faults) as relay:
        with opened(relay.address) as connection:
            connection.sendall(stream)
            assert received(connection, len(stream)) == stream
            faults.cut_next(byte_count, to_server=False)
            connection.sendall(stream)
            with contextlib.suppress(ConnectionError):
                assert len(received(connection, 1000)) == byte_count
        assert faults.cut_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("to_server", [None, True, False])
def test_an_abandoned_connection_stays_open_and_silent(to_server: bool | None) -> None:
    """Also when one side closes it; new connections are as ever."""
    faults = Faults()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Relay(f"127.0.0.1:{listener.getsockname()[1]}", faults=faults) as relay,
        opened(relay.address) as client,
        listener.accept()[0] as server,
    ):
        ends = {True: (client, server), False: (server, client)}
        for sender, receiver in ends.values():
            receiver.settimeout(WAIT_S)
            sender.sendall(b"before")
            assert received(receiver, 6) == b"before"
        faults.abandon(to_server=to_server)
        for direction, (sender, receiver) in ends.items():
            sender.sendall(b"after")
            sender.shutdown(socket.SHUT_WR)
            if to_server in (None, direction):
                receiver.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    receiver.recv(1)
            else:
                assert received(receiver, 6) == b"after"
        with opened(relay.address) as other, listener.accept()[0] as its_server:
            other.sendall(b"new")
            assert received(its_server, 3) == b"new"
        faults.cut()
        for _, receiver in ends.values():
            receiver.settimeout(WAIT_S)
            with contextlib.suppress(ConnectionError):
                assert receiver.recv(1) == b""


def test_new_connections_are_refused_and_the_old_ones_stay() -> None:
    faults = Faults()
    with Echo() as echo, Relay(echo.address, faults=faults) as relay:
        with opened(relay.address) as connection:
            connection.sendall(request(1))
            assert received(connection, len(request(1))) == request(1)
            faults.refuse()
            with pytest.raises(ConnectionRefusedError):
                opened(relay.address)
            connection.sendall(request(2))
            assert received(connection, len(request(2))) == request(2)
        faults.accept()
        with opened(relay.address) as connection:
            connection.sendall(request(3))
            assert received(connection, len(request(3))) == request(3)


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    with Relay(f"127.0.0.1:{free_port()}") as relay, opened(relay.address) as connection:
        assert connection.recv(1) == b""


def test_what_breaks_in_a_callback_is_told_at_the_end() -> None:
    def broken(frame: SeenFrame) -> None:
        raise RuntimeError("our own mistake")

    with Echo() as echo:
        relay = Relay(echo.address, on_frame=broken)
        with opened(relay.address) as connection:
            connection.sendall(request(1))
            with contextlib.suppress(ConnectionError):
                assert connection.recv(1) == b""
        with pytest.raises(PeerError, match="the relay failed"):
            relay.close()


# ---- a cluster -----------------------------------------------------------------------------------


def send_all(url: str, topic: str, timeout_s: float) -> None:
    """Send what BODIES has; a send that failed, or had no answer in time, is sent again."""
    deadline_s = time.monotonic() + WAIT_S
    with Producer(f"rocketmq://{url}", route_refresh_s=0.2, timeout_s=timeout_s) as producer:
        for body in BODIES:
            while True:
                try:
                    producer.send(Message(topic, body))
                    break
                except ClientError:
                    assert time.monotonic() < deadline_s


def bodies(broker: Broker, topic: str) -> set[bytes]:
    return {message.body for message in broker.messages(topic)}


def test_clients_are_told_the_relays_addresses_and_nothing_else_changes(broker: Broker) -> None:
    broker.create_topic("Told")
    seen = Seen()
    with ClusterRelay(broker.namesrv_address, on_frame=seen) as relay:
        with Client(f"rocketmq://{relay.namesrv_address}") as client:
            route = client.call(
                relay.namesrv_address,
                client.command(RequestCode.GET_ROUTEINFO_BY_TOPIC, more={"topic": "Told"}),
            )
            info = client.call(
                relay.namesrv_address, client.command(RequestCode.GET_BROKER_CLUSTER_INFO)
            )
        relayed = relay.broker_address(broker.broker_address)
    assert relayed != broker.broker_address
    (of_route,) = TopicRouteData.from_body(route.body).broker_datas
    (of_info,) = ClusterInfo.from_body(info.body).broker_addr_table.values()
    assert of_route.broker_addrs == of_info.broker_addrs == {0: relayed}
    originals = [decode_frame(frame.data) for frame in seen.frames if not frame.to_server]
    for answer, original in zip((route, info), originals, strict=True):
        assert broker.broker_address.encode() in original.body
        assert answer.body == original.body.replace(
            broker.broker_address.encode(), relayed.encode()
        )
        answer.body = original.body
        assert answer == original
    assert b"{0:" in info.body  # no JSON: fastjson's own


@pytest.mark.parametrize(
    "faults",
    [
        Faults(),
        Faults(delay_s=0.01, jitter_s=0.01),
        Faults(split_bytes=7, split_pause_s=0.0001),
    ],
    ids=["none", "delay", "split"],
)
@pytest.mark.slow
def test_sends_arrive(broker: Broker, faults: Faults, request: pytest.FixtureRequest) -> None:
    topic = f"Arrive-{request.node.callspec.id}"
    seen = Seen()
    with ClusterRelay(broker.namesrv_address, faults=faults, on_frame=seen) as relay:
        # In pieces of 7 bytes a send takes 0.1 s, and several times that on a busy machine.
        send_all(relay.namesrv_address, topic, timeout_s=WAIT_S)
    assert bodies(broker, topic) == set(BODIES)
    sends = [
        frame
        for frame in seen.frames
        if frame.request_code == RequestCode.SEND_MESSAGE_V2 and frame.to_server
    ]
    assert [decode_frame(frame.data).body for frame in sends] == BODIES
    assert {frame.server for frame in sends} == {broker.broker_address}
    answers = [
        frame
        for frame in seen.frames
        if frame.request_code == RequestCode.SEND_MESSAGE_V2 and not frame.to_server
    ]
    assert len(answers) == len(BODIES)


@pytest.mark.slow
def test_sends_arrive_over_connections_that_are_cut(broker: Broker) -> None:
    """Each fifth send is cut in its middle, each fifth answer too, and sometimes all is."""
    faults = Faults()
    count = 0

    def on_frame(frame: SeenFrame) -> None:
        nonlocal count
        if frame.request_code == RequestCode.SEND_MESSAGE_V2 and not frame.to_server:
            count += 1
            if count % 5 == 1:
                faults.cut_next(50, to_server=True)
            elif count % 5 == 3:
                faults.cut_next(50, to_server=False)
            elif count % 10 == 0:
                faults.cut()

    with ClusterRelay(broker.namesrv_address, faults=faults, on_frame=on_frame) as relay:
        send_all(relay.namesrv_address, "Cut", timeout_s=1.0)
    assert faults.cut_count >= 8
    assert bodies(broker, "Cut") == set(BODIES)


def test_answers_grow_with_the_relays_addresses_and_are_cut_in_their_middle() -> None:
    """What a server that echoes sends back are answers too: to the requests before them."""
    asked = encode(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=3))
    body = b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"a:1",1:"a:12"},"brokerName":"a:1 b"}}}'
    answer = encode(RemotingCommand(0, body=body, opaque=3, flag=1))
    faults = Faults()
    with Echo() as echo, ClusterRelay(echo.address, faults=faults) as relay:
        addresses = [relay.broker_address(real).encode() for real in ("a:1", "a:12")]
        new_body = body.replace(b'"a:12"', b'"%s"' % addresses[1])
        new_body = new_body.replace(b'"a:1"', b'"%s"' % addresses[0])
        expected = asked + encode(RemotingCommand(0, body=new_body, opaque=3, flag=1))
        with opened(relay.namesrv_address) as connection:
            connection.sendall(asked + answer)
            assert received(connection, len(expected)) == expected
            faults.cut_next(10, to_server=False)
            connection.sendall(asked)
            with contextlib.suppress(ConnectionError):
                assert received(connection, 1000) == asked[:10]
        assert faults.cut_count == 1


async def test_faults_may_be_set_in_a_trio_task() -> None:
    faults = Faults()
    with Echo() as echo, Relay(echo.address, faults=faults) as relay:
        host, _, port = relay.address.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(request(1))
            assert await stream.receive_some(1) == request(1)[:1]
            faults.cut()
        faults.refuse()
        with pytest.raises(OSError, match=r"refused|failed"):
            await trio.open_tcp_stream(host, int(port))


def test_the_vip_port_is_two_below(broker: Broker) -> None:
    with ClusterRelay(broker.namesrv_address) as relay:
        host, _, port = relay.broker_address(broker.broker_address).rpartition(":")
        with opened(f"{host}:{int(port) - 2}") as connection:
            connection.sendall(encode(RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG)))
            assert connection.recv(4) != b""


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_the_official_client_goes_through_the_relay(
    broker: Broker, tmp_path: Path, version: str
) -> None:
    topic = f"ByJava{version.replace('.', '_')}"
    broker.create_topic(topic, queues=2)
    seen = Seen()
    faults = Faults(delay_s=0.005, jitter_s=0.005)
    print(faults)
    with (
        ClusterRelay(broker.namesrv_address, faults=faults, on_frame=seen) as relay,
        JavaPeer(version, tmp_path) as peer,
    ):
        peer.start_consuming("c", [topic], namesrv_address=relay.namesrv_address, group=f"g{topic}")
        peer.start_sending(
            "p", topic, namesrv_address=relay.namesrv_address, mode="sync", message_count=50
        )
        peer.wait_sent("p", timeout_s=60)
        faults.cut()
        peer.wait(
            lambda: len(peer.keys_by_group[f"g{topic}"]) == 50, timeout_s=60, what="50 messages"
        )
    frames = [frame for frame in seen.frames if frame.server == broker.broker_address]
    sends = [frame for frame in frames if frame.request_code == RequestCode.SEND_MESSAGE_V2]
    assert len([frame for frame in sends if frame.to_server]) >= 50
    pulls = [frame for frame in frames if frame.request_code == RequestCode.PULL_MESSAGE]
    assert any(not frame.to_server and decode_frame(frame.data).body for frame in pulls)
