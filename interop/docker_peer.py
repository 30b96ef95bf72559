"""Apache's name server and broker from the official images, each in its own container.

The engine must run on this machine: the cluster's folder is mounted, and ports are published on the
loopback address. Java is process 1 of each container, unlike with the images' scripts, so that a
stop (SIGTERM) reaches the broker's shutdown hook. Containers run as the user of this process, so
that their files can be removed.

`python -m trocket.interop.docker_peer NAME` removes what a cluster of that name left; the `guard`
runs it when the harness was killed.

Source: apache/rocketmq-docker, image-build/Dockerfile-ubuntu and the scripts beside it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .apache import ANSWER_TIMEOUT_S, STARTUP, ask_route, broker_conf_text
from .guard import guard
from .maven import JAVA_OPENS, JAVA_SMALL
from .peer import LocalCluster
from .process import PeerError
from .wire import WireClient

LOCAL_ENGINE = "unix:///var/run/docker.sock"
"""The engine that the package uses when DOCKER_HOST is not set."""
IMAGE = "apache/rocketmq"
LABEL = "trocket.interop"
HOME = "/trocket"
"""The mount point of the cluster's folder in the containers."""
IMAGE_GROUP = "3000"
"""The group that may read the image's ROCKETMQ_HOME, whatever user runs there."""
NAMESRV_PORT = 9876
GET_BROKER_RUNTIME_INFO = 28

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60
ENGINE_TIMEOUT_S = 180
"""For one call to the engine; longer than a stop takes."""
LOG_LINES_KEPT = 15

_LAUNCH = (
    'exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" %s -Duser.home=' + HOME + " -cp"
    ' "$ROCKETMQ_HOME/conf:$ROCKETMQ_HOME/lib/*" %s -c ' + HOME + "/conf/%s.conf"
)


def open_engine() -> Any:
    """A client of the engine that the environment names (DOCKER_HOST), or of the local one.

    Raises: PeerError: the Python package is missing, or no engine answers.
    """
    try:
        import docker
    except ImportError as error:
        text = "no Python package docker: pip install 'trocket[docker]'"
        raise PeerError(text) from error
    host = os.environ.get("DOCKER_HOST") or LOCAL_ENGINE
    if host.startswith("unix://"):
        # Probed first: the package leaks an open socket when no engine listens there.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(host.removeprefix("unix://"))
            except OSError as error:
                raise PeerError(f"no Docker engine answers at {host}: {error}") from error
    with engine_errors(f"no Docker engine answers at {host}"):
        engine = docker.from_env(timeout=ENGINE_TIMEOUT_S)
        try:
            engine.ping()
        except BaseException:
            engine.close()
            raise
    return engine


@contextlib.contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Turn errors of the engine's client, raised inside, into PeerError."""
    import docker.errors
    import requests

    try:
        yield
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise PeerError(f"{what}: {error}") from error


class _Container:
    """A name server or broker in its container, as a `peer.Part`."""

    def __init__(self, container: Any, what: str) -> None:
        self._container = container
        self._what = what

    @property
    def pid(self) -> int:
        """Its process on this machine. Raises: PeerError: the engine refused."""
        with engine_errors(f"finding the process of {self._what}"):
            self._container.reload()
        return int(self._container.attrs["State"]["Pid"])

    def stop(self, *, timeout_s: float) -> int:
        """Stop it by SIGTERM. Raises: PeerError: the engine refused, or had to kill it."""
        with engine_errors(f"stopping {self._what}"):
            self._container.stop(timeout=timeout_s)
            self._container.reload()
        code = int(self._container.attrs["State"]["ExitCode"])
        if code == 128 + 9:
            raise PeerError(f"{self._container.name} did not stop in {timeout_s} s")
        return code

    def kill(self) -> None:
        """Kill it (SIGKILL) and wait. Raises: PeerError: the engine refused."""
        with engine_errors(f"killing {self._what}"):
            self._container.kill("SIGKILL")
            self._container.wait()


class DockerCluster(LocalCluster):
    """A name server and a broker in containers (see `peer.Cluster`).

    The first `start` creates the containers and their network, `close` removes them.

    Args:
      version: a tag of the image: "5.3.3".
      folder: configuration, store and logs.
      broker_keys: added to broker.conf, over what is set here; None removes a key.
      engine: as from `open_engine`, which is called if it is None; closed with the cluster.
    Raises: PeerError: no engine answers.
    """

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        broker_keys: Mapping[str, object] = MappingProxyType({}),
        engine: Any = None,
    ) -> None:
        super().__init__(f"docker-{version}", folder.absolute(), stop_timeout_s=STOP_TIMEOUT_S)
        self.name = f"trocket-interop-{secrets.token_hex(6)}"
        self._engine = open_engine() if engine is None else engine
        self._image = f"{IMAGE}:{version}"
        self._containers: dict[str, Any] = {}
        conf = self.folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        (conf / "namesrv.conf").write_text(broker_conf_text({"listenPort": NAMESRV_PORT}))
        keys: dict[str, object] = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": self._broker_port,
            "namesrvAddr": f"{self.name}-namesrv:{NAMESRV_PORT}",
            "autoCreateTopicEnable": True,
            "storePathRootDir": f"{HOME}/store",
            "storePathCommitLog": f"{HOME}/store/commitlog",
            **broker_keys,
        }
        (conf / "broker.conf").write_text(broker_conf_text(keys))

    def close(self) -> None:
        """Remove the containers and their network. Raises: PeerError: the engine refused."""
        try:
            if self._containers:
                remove_cluster(self._engine, self.name)
                guard().forget_command(removal(self.name))
                self._containers.clear()
                self._running.clear()
        finally:
            self._engine.close()

    # ---- containers ----------------------------------------------------------------------

    def _create(self) -> None:
        guard().watch_command(removal(self.name))
        with engine_errors(f"making the containers of {self.label}"):
            self._pull()
            self._engine.networks.create(self.name, driver="bridge", labels={LABEL: self.name})
            # Older clients send to the VIP port, two below the broker's.
            broker_ports = (self._broker_port, self._broker_port - 2)
            ports = {
                "namesrv": {f"{NAMESRV_PORT}/tcp": ("127.0.0.1", self._namesrv_port)},
                "broker": {f"{port}/tcp": ("127.0.0.1", port) for port in broker_ports},
            }
            for role in ("namesrv", "broker"):
                self._containers[role] = self._engine.containers.create(
                    self._image,
                    entrypoint=["sh", "-c"],
                    command=[_LAUNCH % (" ".join(JAVA_SMALL), STARTUP[role], role)],
                    name=f"{self.name}-{role}",
                    environment={"JDK_JAVA_OPTIONS": " ".join(JAVA_OPENS)},
                    group_add=[IMAGE_GROUP],
                    labels={LABEL: self.name},
                    network=self.name,
                    ports=ports[role],
                    user=f"{os.getuid()}:{os.getgid()}",
                    volumes={str(self.folder): {"bind": HOME, "mode": "rw"}},
                    working_dir=HOME,
                )

    def _pull(self) -> None:
        import docker.errors

        try:
            self._engine.images.get(self._image)
        except docker.errors.ImageNotFound:
            repository, _, tag = self._image.partition(":")
            self._engine.images.pull(repository, tag=tag)

    def _launch(self, name: str) -> None:
        """Start a container, created if need be, and wait until its server answers.

        Raises: PeerError: the engine refused, or the server did not answer in time.
        """
        if not self._containers:
            self._create()
        answers = {"namesrv": self._namesrv_answers, "broker": self._broker_answers}[name]
        container = self._containers[name]
        with engine_errors(f"starting the {name} of {self.label}"):
            container.start()
            self._running[name] = _Container(container, f"the {name} of {self.label}")
            deadline_s = time.monotonic() + START_TIMEOUT_S
            pause = threading.Event()
            while not answers():
                container.reload()
                late = time.monotonic() > deadline_s
                if late or container.status != "running":
                    state = f"after {START_TIMEOUT_S} s" if late else f"it is {container.status}"
                    log = container.logs(tail=LOG_LINES_KEPT).decode(errors="replace")
                    raise PeerError(f"{container.name} does not answer: {state}\n{log}")
                pause.wait(0.1)

    def _namesrv_answers(self) -> bool:
        # A published port takes connections before the server behind it listens.
        try:
            ask_route(self.namesrv_address)
        except PeerError:
            return False
        return True

    def _broker_answers(self) -> bool:
        try:
            with WireClient(self.broker_address, timeout_s=ANSWER_TIMEOUT_S) as client:
                client.call(GET_BROKER_RUNTIME_INFO, {})
            route = ask_route(self.namesrv_address)
        except PeerError:
            return False
        return route is not None and any(
            self.broker_address in broker.broker_addrs.values() for broker in route.broker_datas
        )


def remove_cluster(engine: Any, name: str) -> None:
    """Remove the containers and the network of one cluster; missing ones are ignored.

    Raises: PeerError: the engine refused.
    """
    import docker.errors

    with engine_errors(f"removing {name}"):
        for role in ("broker", "namesrv"):
            with contextlib.suppress(docker.errors.NotFound):
                engine.containers.get(f"{name}-{role}").remove(force=True, v=True)
        with contextlib.suppress(docker.errors.NotFound):
            engine.networks.get(name).remove()


def removal(name: str) -> list[str]:
    """The command that removes what a cluster left."""
    return [sys.executable, "-m", "trocket.interop.docker_peer", name]


def main(name: str) -> None:
    """Remove what a cluster left. Raises: PeerError: no engine answers, or it refused."""
    engine = open_engine()
    try:
        remove_cluster(engine, name)
    finally:
        engine.close()


if __name__ == "__main__":
    main(sys.argv[1])
