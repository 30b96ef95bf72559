"""The name server and the broker of `trocket up` in one process, and their restarts for a test.

Ready means: both listen, the broker is registered, and a client's requests are answered
(`self_check`). A broker whose store accepts no messages (read-only, disk full) is still served,
with a notice.
On a stop the broker ends first, so that it can still unregister from the name server.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import __version__
from ...common import process
from ...native import choice
from ...remoting.hosts import join_address
from .plan import reachable, usage
from .ready import announce

if TYPE_CHECKING:
    from collections.abc import Sequence

    import trio

    from ...auth.server_access import ServerAccess
    from ...broker.controller import BrokerController
    from ...broker.settings.config import BrokerConfig
    from ...common.clock import Clock
    from ...disk.os_disk import Disk
    from ...namesrv.config import NamesrvConfig
    from ...namesrv.controller import NamesrvController
    from ...remoting.turn import Turn
    from ...store.config import MessageStoreConfig
    from .config import UpTls
    from .console import ConsoleChild
    from .control import Control


def _metrics_listener(config: BrokerConfig) -> socket.socket | None:
    """The socket for metrics, on a free port if the usual one is in use; None: they are off.

    Raises: OSError: no port can be used.
    """
    from ...remoting.metrics.listening import open_metrics_listener

    try:
        return open_metrics_listener(config)
    except OSError as error:
        process.logger.warning("metrics are served on a free port: %s", error)
        config.metrics_prom_exporter_port = 0
        return open_metrics_listener(config)


class SelfCheckError(Exception):
    """The servers run, but the self-check's requests were not answered as they should."""


class _Ground(NamedTuple):
    """What both servers share."""

    clock: Clock
    disk: Disk
    turn: Turn


class Up:
    """A name server and a broker in one process.

    Args:
      namesrv, broker, store: whole configurations; a port 0 takes any free one.
      tls: of both servers.
      as_json: when ready, print one JSON object, and nothing else on standard output.
      home: the data folder, to be printed.
      in_memory: keep all files in this process's memory.
      config_path: the file of the broker, absolute, where changed settings are saved; "": none.
      console: is started when both are ready; None: there is none.
      control: has the clock and the disk, and serves its port; None: the machine's are used.
      ready_file: gets the line of JSON when both are ready; None: there is none.
    """

    def __init__(
        self,
        namesrv: NamesrvConfig,
        broker: BrokerConfig,
        store: MessageStoreConfig,
        tls: UpTls,
        *,
        as_json: bool,
        home: str,
        in_memory: bool = False,
        config_path: str = "",
        console: ConsoleChild | None = None,
        control: Control | None = None,
        ready_file: str | None = None,
    ) -> None:
        self._namesrv = namesrv
        self._broker = broker
        self._store = store
        self._tls = tls
        self._as_json = as_json
        self._home = home
        self._in_memory = in_memory
        self._config_path = config_path
        self._metrics = ""
        self._console = console
        self._console_address = ""
        self._control = control
        self._ready_file = ready_file
        self._namesrv_access: ServerAccess | None = None
        self._further_namesrv = tuple(broker.namesrv_addresses)
        self._life: trio.CancelScope | None = None
        self._is_first, self._is_stopping = True, False

    async def run(self, stop: trio.CancelScope) -> None:
        """Run both until `stop` is cancelled.

        Raises: OSError, StoreError: a server could not start; SelfCheckError: the self-check
          failed; ConsoleError: the console did not start; or the error of a server that failed.
        """
        import trio

        control = self._control
        # The console and the control port outlive a restart.
        async with trio.open_nursery() as lasting:
            lasting.start_soon(self._end_at, stop)
            if control is None:
                await self._live(lasting)
            else:
                with control.held_ports(self._namesrv, self._broker):
                    while await self._live(lasting):
                        self._is_first = False
            lasting.cancel_scope.cancel()

    async def _end_at(self, stop: trio.CancelScope) -> None:
        """Have the servers end when `stop` is cancelled."""
        import trio

        with stop:
            await trio.sleep_forever()
        self._is_stopping = True
        if self._life is not None:
            self._life.cancel()

    async def _live(self, lasting: trio.Nursery) -> bool:
        """Run both until they are to end; returns whether they are to start again.

        Args:
          lasting: runs what a restart leaves as it is.
        """
        import trio

        control = self._control
        self._life = life = trio.CancelScope()
        if self._is_stopping:
            life.cancel()
        if control is not None:
            control.restarts.begin(life)
        # After the stop the console ends, then the broker, which unregisters at the name server.
        async with trio.open_nursery() as outer:
            ground = self._ground()
            namesrv = self._new_namesrv(ground)
            await outer.start(namesrv.run)
            ours = self._namesrv_address(namesrv)
            self._broker.namesrv_addr = ";".join([ours, *self._further_namesrv])
            broker = self._new_broker(ground)
            async with trio.open_nursery() as inner:
                try:
                    with life:
                        await inner.start(broker.run)
                        if control is not None:
                            control.drive((namesrv, outer), (broker, inner))
                        if self._is_first:
                            await self._first_start(ours, broker, lasting)
                        await trio.sleep_forever()
                finally:
                    await self._before_the_broker_ends()
                inner.cancel_scope.cancel()
            outer.cancel_scope.cancel()
        return control is not None and control.restarts.ended() and not self._is_stopping

    def _new_namesrv(self, ground: _Ground) -> NamesrvController:
        """A name server, which does not run yet. Raises: OSError: an address is in use."""
        from ...namesrv.controller import NamesrvController

        control = self._control
        namesrv = NamesrvController(
            self._namesrv,
            **ground._asdict(),
            listeners=None if control is None else control.namesrv_listeners(self._namesrv),
            tls=self._tls.namesrv,
        )
        self._namesrv_access = namesrv.access
        return namesrv

    def _new_broker(self, ground: _Ground) -> BrokerController:
        """A broker, which does not run yet. Raises: OSError: an address is in use."""
        from ...broker.controller import BrokerController

        control = self._control
        return BrokerController(
            self._broker,
            self._store,
            **ground._asdict(),
            metrics_listener=self._open_metrics(),
            listeners=None if control is None else control.broker_listeners(self._broker),
            config_path=self._config_path,
            expects_slaves=control is None,
            tls=self._tls.broker,
            clients_ms=None if control is None else control.clients_ms,
        )

    def _ground(self) -> _Ground:
        """What both servers stand on."""
        from ...common.clock import SystemClock
        from ...disk.memory_disk import MemoryDisk
        from ...disk.os_disk import OsDisk
        from ...remoting.turn import Turn

        if self._control is not None:
            return _Ground(self._control.clock, self._control.disk, self._control.turn)
        return _Ground(SystemClock(), MemoryDisk() if self._in_memory else OsDisk(), Turn())

    def _open_metrics(self) -> socket.socket | None:
        """The socket for metrics; a restart takes the same port. Raises: as `_metrics_listener`."""
        metrics = _metrics_listener(self._broker)
        if metrics is not None:
            host, port = metrics.getsockname()[:2]
            scheme = "https" if self._broker.metrics_tls_enable else "http"
            self._metrics = f"{scheme}://{join_address(host, port)}/metrics"
            self._broker.metrics_prom_exporter_port = port
        return metrics

    def _namesrv_address(self, namesrv: NamesrvController) -> str:
        """The `host:port` of a name server that runs."""
        from ...remoting.opener import split_address

        port = split_address(namesrv.listen_addresses[0])[1]
        return join_address(reachable(self._namesrv.bind_address), port)

    async def _first_start(
        self, namesrv: str, broker: BrokerController, lasting: trio.Nursery
    ) -> None:
        """Open the control port, check the servers, and announce them."""
        if self._control is not None:
            addresses = {"namesrv": namesrv, "broker": broker.broker_addr}
            await lasting.start(self._control.serve, addresses)
        await self._become_ready(namesrv, broker, lasting)
        process.settle()

    async def _before_the_broker_ends(self) -> None:
        import trio

        control = self._control
        if control is not None:
            control.hurry()
        if self._console is not None and (control is None or not control.restarts.is_wanted):
            with trio.CancelScope(shield=True):
                await self._console.stop()

    async def _become_ready(
        self, namesrv: str, broker: BrokerController, nursery: trio.Nursery
    ) -> None:
        from ...remoting.opener import split_address

        advertised = broker.broker_addr
        port = split_address(advertised)[1]
        here = join_address(reachable(self._broker.bind_address), port)
        try:
            check_ms, warning = await self._check(namesrv, here, broker)
        except SelfCheckError:
            if not broker.sends_refused:
                raise
            # Meanwhile the broker found the disk too full: check again, without a send.
            check_ms, warning = await self._check(namesrv, here, broker)
        refused = broker.sends_refused
        if self._console is not None:
            self._console_address = await self._console.start(namesrv, broker.super_account)
            nursery.start_soon(self._console.watch)
        if warning:
            process.logger.warning(warning)
        host = (
            self._broker.broker_ip1 if here != advertised else reachable(self._namesrv.bind_address)
        )
        self._announce(
            join_address(host, split_address(namesrv)[1]),
            advertised,
            broker.listen_addresses,
            refused or self._checked(broker, check_ms),
            refused,
        )

    def _checked(self, broker: BrokerController, check_ms: float) -> str:
        if self._may_send(broker):
            return f"route, send and pull answered in {check_ms:.0f} ms"
        return "the route was answered; no send was tried, as no account may do everything"

    @staticmethod
    def _may_send(broker: BrokerController) -> bool:
        """Whether this process has an account, or needs none, to send to its broker."""
        return broker.super_account is not None or not broker.has_access_control

    async def _check(self, namesrv: str, here: str, broker: BrokerController) -> tuple[float, str]:
        from ...remoting.errors import RemotingError
        from ..self_check import check

        takes_sends = not broker.sends_refused and self._may_send(broker)
        try:
            return await check(
                namesrv,
                here,
                broker.broker_addr,
                takes_sends=takes_sends,
                accounts=(
                    self._namesrv_access.super_account if self._namesrv_access else None,
                    broker.super_account,
                ),
                tls=self._tls.check,
            )
        except RemotingError as error:
            raise SelfCheckError(f"the self-check failed: {error}") from error

    def _announce(
        self, namesrv: str, advertised: str, listening: Sequence[str], checked: str, refused: str
    ) -> None:
        facts: dict[str, Any] = {
            "ready": True,
            "seconds": round(process.seconds_since_start(), 3),
            "version": __version__,
            "pid": os.getpid(),
            "namesrv": namesrv,
            "broker": advertised,
            "listening": list(listening),
            "home": self._home,
            "store": self._store.store_path_root_dir,
            "memory": self._in_memory,
            "metrics": self._metrics,
            "console": self._console_address,
            **({} if self._control is None else {"control": self._control.url}),
            "sendsRefused": refused,
            "hotPath": choice.description,
        }
        listening_text = ", ".join(listening)
        console = f"  console      {self._console_address}\n" if self._console_address else ""
        if self._control is not None:
            console += f"  control      {self._control.url}\n"
        data = "in memory, gone at the end" if self._in_memory else facts["store"]
        text = (
            f"trocket {__version__}, process {facts['pid']}\n"
            f"  name server  {namesrv}\n"
            f"  broker       {advertised}  {self._broker.broker_name} of "
            f"{self._broker.broker_cluster_name}, listening on {listening_text}\n"
            f"  data         {data}\n"
            f"  metrics      {self._metrics or 'none'}\n"
            f"{console}"
            f"  self-check   {checked}\n"
            f"  hot path     {choice.description}\n"
            "\n"
            f"{usage(namesrv)}\n"
            f"ready {facts['seconds']:.2f} s after the start; Ctrl-C or SIGTERM stops"
        )
        announce(facts, text, as_json=self._as_json, ready_file=self._ready_file)
