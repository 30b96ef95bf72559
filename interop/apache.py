"""Apache's name server and broker, run from the official jars, 4.2.0 to 5.5.0.

Everything a run writes stays in its folder: store, configuration and, through `user.home`, the
logs. 4.x reads conf/logback_*.xml under ROCKETMQ_HOME, written here; 5.x has its own in the jars.
4.2.0 is the last version with a filter server, which filters with Java classes sent by clients.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

from ..remoting.bodies.route import TopicRouteData
from ..remoting.errors import RemoteProtocolError
from . import class_archive
from .maven import JAVA_BROKER, JAVA_OPENS, JAVA_SMALL, fetch_jars
from .peer import LocalCluster
from .process import LineProcess, PeerError
from .tls_files import ServerTls
from .wire import GET_ROUTEINFO_BY_TOPIC, SUCCESS, WireClient, wait_for_route

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 5.0
LOG_TAIL_MAX = 20
"""Lines of a log in an error text."""

LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>${{user.home}}/logs/{name}.log</file>
    <encoder><pattern>%d %p %t - %m%n</pattern></encoder>
  </appender>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%m%n</pattern></encoder>
  </appender>
  <logger name="{on_console}" level="INFO"><appender-ref ref="console"/></logger>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""
BROKER_LOGGER = "RocketmqBroker"
"""The logger to which 4.2.0's broker reports that it has booted; later ones print it on stdout."""
NO_LOGGER = "nothing"

MAPPED_SINCE = (4, 5)
"""Earlier versions spell it mapedFileSizeCommitLog and ignore the other spelling."""

UPDATE_BROKER_CONFIG = 25
DEFAULT_TOPIC = "TBW102"

NO_TLS = "-Dtls.server.mode=disabled"
"""Without files for TLS, each server makes an RSA key at its start: half of its CPU time."""
QUICK_KEYS: Mapping[str, object] = {
    # 5.x: a thread spins for the first of these intervals, which is 3 s by default.
    "transactionMetricFlushInterval": 250,
    # 5.x: each time 37 MB of the timer wheel are copied, by default each second.
    "timerFlushIntervalMs": 5_000,
}
"""Keys of broker.conf that spare CPU time and change nothing that clients see; 4.x ignores them."""

STARTUP = {
    "namesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
    "broker": "org.apache.rocketmq.broker.BrokerStartup",
    "filtersrv": "org.apache.rocketmq.filtersrv.FiltersrvStartup",
    "controller": "org.apache.rocketmq.controller.ControllerStartup",
}
"""Main class of each process, the same in all versions; 4.x has no controller."""


def broker_conf_text(keys: Mapping[str, object]) -> str:
    """A properties file of `key = value` lines; booleans as Java writes them, None as no line."""
    lines = []
    for key, value in keys.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if value is not None:
            lines.append(f"{key} = {text}\n")
    return "".join(lines)


def ask_route(
    namesrv_address: str, *, timeout_s: float = ANSWER_TIMEOUT_S
) -> TopicRouteData | None:
    """The route of the topic that every Apache broker has; None: the name server knows none.

    Raises: PeerError: the name server does not answer, or its answer is not a route.
    """
    with WireClient(namesrv_address, timeout_s=timeout_s) as client:
        answer = client.call(GET_ROUTEINFO_BY_TOPIC, {"topic": DEFAULT_TOPIC})
    if answer.code != SUCCESS:
        return None
    try:
        return TopicRouteData.from_body(answer.body)
    except RemoteProtocolError as error:
        raise PeerError(f"{namesrv_address} answered with no valid route: {error}") from error


def start_java(
    name: str,
    folder: Path,
    *,
    jars: Path,
    java: tuple[str, ...],
    is_measured: bool = False,
) -> LineProcess:
    """A server of Apache's, started on `conf/NAME.conf` of its folder; it has booted.

    Args:
      name: a key of STARTUP.
      folder: of this server: its configuration, and its logs.
      jars: their folder.
      java: options of the JVM.
      is_measured: do not spare CPU time at its start.
    Raises: PeerError: it ended, or did not report success in 180 s.
    """
    command = ["java", *java, *JAVA_OPENS, f"-Duser.home={folder}"]
    command += ["-cp", f"{jars}/*", STARTUP[name], "-c", str(folder / "conf" / f"{name}.conf")]
    if not is_measured:
        command = class_archive.with_archive(command)
    home = {"ROCKETMQ_HOME": str(folder)}
    process = LineProcess(command, folder=folder, name=name, environment=home)
    try:
        process.wait_line(lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S)
    except PeerError as error:
        process.kill()
        raise PeerError(f"{error}\n{_log_tail(folder, name)}") from error
    class_archive.dump(command, process.pid)
    return process


def _log_tail(folder: Path, name: str) -> str:
    """The last lines of a process's log file, which holds the reason of a failed start."""
    logs = folder / "logs"
    found = [
        path
        for path in (logs / f"{name}.log", logs / "rocketmqlogs" / f"{name}.log")
        if path.is_file()
    ]
    lines = [
        line
        for path in found
        for line in path.read_text(errors="replace").splitlines()[-LOG_TAIL_MAX:]
    ]
    return "\n".join([f"log of {name}:", *lines])


class ApacheCluster(LocalCluster):
    """Apache's name server and broker (see `peer.Cluster`).

    Args:
      version: such as "5.5.0"; the jars are fetched when missing.
      folder: everything of this run; two clusters never share one.
      broker_java, namesrv_java: options of each JVM; small and quick by default.
      broker_keys: added to broker.conf, over what is set here; None removes a key. A broker
        without `namesrvAddr` runs alone: `start_broker`, never `start`.
      is_measured: for benches: keep Apache's defaults where they only cost CPU time.
      tls: TLS of both servers; None: none, unless it is measured.
      filter_server: start a filter server beside the broker; up to 4.2.0 only. It ends with the
        broker, as it does by itself some seconds later.
    Raises: PeerError: the jars cannot be fetched, or this version has no filter server.
    """

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        broker_java: tuple[str, ...] = JAVA_BROKER,
        namesrv_java: tuple[str, ...] = JAVA_SMALL,
        broker_keys: Mapping[str, object] | None = None,
        is_measured: bool = False,
        filter_server: bool = False,
        tls: ServerTls | None = None,
    ) -> None:
        super().__init__(
            f"apache-{version}",
            folder,
            stop_timeout_s=STOP_TIMEOUT_S,
            context=None if tls is None else tls.context,
        )
        self._tls = tls
        self._is_measured = is_measured
        server_jars = fetch_jars(version, "server")
        self._jars = {"namesrv": server_jars, "broker": server_jars}
        self._java = {"namesrv": namesrv_java, "broker": broker_java, "filtersrv": JAVA_SMALL}
        conf = folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        # Written for every version; 5.x ignores these files.
        reports_in_log = version_numbers(version) < (4, 3)
        for name in STARTUP:
            logger = BROKER_LOGGER if reports_in_log and name == "broker" else NO_LOGGER
            text = LOGBACK.format(name=name, on_console=logger)
            (conf / f"logback_{name}.xml").write_text(text)
        store = folder / "store"
        keys: dict[str, object] = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": self._broker_port,
            "haListenPort": self._broker_port + 1,
            "namesrvAddr": self.namesrv_address,
            "autoCreateTopicEnable": True,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            **({} if is_measured else QUICK_KEYS),
            **(broker_keys or {}),
        }
        if version_numbers(version) < MAPPED_SINCE:
            keys = {name.replace("mappedFile", "mapedFile"): value for name, value in keys.items()}
        (conf / "broker.conf").write_text(broker_conf_text(keys))
        listen = {"listenPort": self._namesrv_port}
        (conf / "namesrv.conf").write_text(broker_conf_text(listen))
        if filter_server:
            if not has_filter_server(version):
                raise PeerError(
                    f"Apache RocketMQ {version} has no filter server; 4.2.0 is the last with one"
                )
            self._jars["filtersrv"] = fetch_jars(version, "filtersrv")
            filter_keys = {
                "namesrvAddr": self.namesrv_address,
                "connectWhichBroker": self.broker_address,
                "filterServerIP": "127.0.0.1",
            }
            (conf / "filtersrv.conf").write_text(broker_conf_text(filter_keys))

    def _launch(self, name: str) -> None:
        self._running[name] = start_java(
            name,
            self.folder,
            jars=self._jars[name],
            java=(*self._java[name], *self._tls_options()),
            is_measured=self._is_measured,
        )

    def _tls_options(self) -> tuple[str, ...]:
        if self._tls is not None:
            return tuple(self._tls.java_options)
        return () if self._is_measured else (NO_TLS,)

    def start_broker(self) -> None:
        """Start the broker, and wait until the name server, if it runs, has its registration.

        The broker registers before it reports success, but that may fail; it retries after 10 s.

        With a filter server, routes contain its address when this returns.

        Raises: PeerError: the broker did not report success.
        """
        if "broker" not in self._running:
            self._launch("broker")
            if "namesrv" in self._running:
                wait_for_route(self.namesrv_address, DEFAULT_TOPIC, timeout_s=START_TIMEOUT_S)
        if "filtersrv" in self._jars and "filtersrv" not in self._running:
            self._launch("filtersrv")
            self._wait_filter_server()

    def _wait_filter_server(self) -> None:
        """Wait until the name server's routes contain the filter server's address.

        It registers with the broker 3 s after its start. The broker forwards it with each of its
        registrations: every 30 s, and when its permission is set, which is done here.
        """
        deadline_s = time.monotonic() + START_TIMEOUT_S
        pause = threading.Event()
        while not self.filter_servers():
            if time.monotonic() > deadline_s:
                raise PeerError(
                    f"no filter server registered with {self.broker_address}"
                    f" in {START_TIMEOUT_S:.0f} s"
                )
            pause.wait(0.5)
            with WireClient(self.broker_address) as client:
                client.call(UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6").checked()

    def filter_servers(self) -> list[str]:
        """HOST:PORT of the filter servers in the broker's route.

        Raises: PeerError: the name server does not answer.
        """
        route = ask_route(self.namesrv_address)
        return [] if route is None else route.filter_server_table.get(self.broker_address, [])

    def stop_broker(self) -> None:
        """Stop the broker by SIGTERM, with its shutdown hook, and kill the filter server.

        Raises: PeerError: it did not end in time.
        """
        self._kill("filtersrv")
        super().stop_broker()

    def kill_broker(self) -> None:
        """Kill the broker, and the filter server, with SIGKILL."""
        self._kill("filtersrv")
        super().kill_broker()


def version_numbers(version: str) -> tuple[int, ...]:
    """(4, 2, 0) for "4.2.0". Raises: PeerError: a part is not a number."""
    try:
        return tuple(int(part) for part in version.split("."))
    except ValueError as error:
        raise PeerError(f"{version!r} is not a version such as 5.5.0") from error


def has_filter_server(version: str) -> bool:
    """Whether a version of Apache's has a filter server. Raises: PeerError: not a version."""
    return version_numbers(version) < (4, 3)
