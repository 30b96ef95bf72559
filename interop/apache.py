"""Apache's own name server and broker from the official jars, 4.9.x and 5.x.

Everything a run writes stays in its folder: store, configuration and, by `user.home`, the logs.
4.9 reads conf/logback_*.xml under ROCKETMQ_HOME, written here; 5.x has its own in the jars.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .maven import JAVA_OPENS, JAVA_SMALL, fetch_jars
from .ports import free_broker_port, free_port
from .process import LineProcess, PeerError

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0

LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>${{user.home}}/logs/{name}.log</file>
    <encoder><pattern>%d %p %t - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


def broker_conf_text(keys: Mapping[str, object]) -> str:
    """A properties file of `key = value` lines; booleans as Java writes them, None as no line."""
    lines = []
    for key, value in keys.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if value is not None:
            lines.append(f"{key} = {text}\n")
    return "".join(lines)


class ApacheCluster:
    """Apache's name server and broker (see `peer.Cluster`).

    Args:
      version: such as "5.5.0"; the jars are fetched when missing.
      folder: everything of this run; two clusters never share one.
      broker_java, namesrv_java: options of each JVM; small and quick by default.
      broker_keys: added to broker.conf, over what is set here; None takes a key out. A broker
        without `namesrvAddr` runs alone: `start_broker`, never `start`.
    """

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        broker_java: tuple[str, ...] = JAVA_SMALL,
        namesrv_java: tuple[str, ...] = JAVA_SMALL,
        broker_keys: Mapping[str, object] | None = None,
    ) -> None:
        self.label = f"apache-{version}"
        self.folder = folder
        self._jars = fetch_jars(version, "server")
        self._java = {"namesrv": namesrv_java, "broker": broker_java}
        self._namesrv_port = free_port()
        self._broker_port = free_broker_port()
        self._namesrv: LineProcess | None = None
        self._broker: LineProcess | None = None
        conf = folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for name in ("namesrv", "broker"):
            (conf / f"logback_{name}.xml").write_text(LOGBACK.format(name=name))
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
            **(broker_keys or {}),
        }
        (conf / "broker.conf").write_text(broker_conf_text(keys))
        listen = {"listenPort": self._namesrv_port}
        (conf / "namesrv.conf").write_text(broker_conf_text(listen))

    @property
    def namesrv_address(self) -> str:
        """HOST:PORT of the name server."""
        return f"127.0.0.1:{self._namesrv_port}"

    @property
    def broker_address(self) -> str:
        """HOST:PORT of the broker."""
        return f"127.0.0.1:{self._broker_port}"

    @property
    def pids(self) -> list[int]:
        """The broker's and the name server's process, as far as they were started."""
        return [process.pid for process in (self._broker, self._namesrv) if process is not None]

    def _launch(self, name: str, main_class: str) -> LineProcess:
        command = ["java", *self._java[name], *JAVA_OPENS, f"-Duser.home={self.folder}"]
        command += ["-cp", f"{self._jars}/*", main_class]
        command += ["-c", str(self.folder / "conf" / f"{name}.conf")]
        home = {"ROCKETMQ_HOME": str(self.folder)}
        process = LineProcess(command, folder=self.folder, name=name, environment=home)
        try:
            process.wait_line(lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S)
        except PeerError:
            process.kill()
            raise
        return process

    def start(self) -> None:
        """Start the name server, then the broker; each is waited for.

        Raises: PeerError: one of them did not report success.
        """
        if self._namesrv is None:
            main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
            self._namesrv = self._launch("namesrv", main_class)
        self.start_broker()

    def start_broker(self) -> None:
        """Start the broker, which registers itself before it reports success.

        Raises: PeerError: it did not report success.
        """
        if self._broker is None:
            self._broker = self._launch("broker", "org.apache.rocketmq.broker.BrokerStartup")

    def stop_broker(self) -> None:
        """Stop the broker by SIGTERM, with its shutdown hook.

        Raises: PeerError: it did not end in time.
        """
        process, self._broker = self._broker, None
        if process is not None:
            process.stop(timeout_s=STOP_TIMEOUT_S)

    def kill_broker(self) -> None:
        """Kill the broker with SIGKILL."""
        process, self._broker = self._broker, None
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Kill both: what must be flushed is stopped before with `stop_broker`."""
        self.kill_broker()
        process, self._namesrv = self._namesrv, None
        if process is not None:
            process.kill()
