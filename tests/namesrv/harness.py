"""A name server's processors without its shell."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from trocket.common.live_config import LiveConfig
from trocket.disk.config_changes import ConfigChanges
from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.namesrv.config import NamesrvConfig, check_values, known_keys
from trocket.namesrv.kv_config import KVConfigManager
from trocket.namesrv.processors import NamesrvServices, name_server_processors
from trocket.namesrv.registration import MinBrokerIdChange
from trocket.namesrv.route_info_manager import RouteInfoManager
from trocket.remoting.channel import Deferred
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RequestRefused


@dataclass
class FakeChannel:
    """All that the processors of a name server use of a channel."""

    remote_address: str = "192.0.2.1:50000"


@dataclass
class Harness:
    """Processors, their state, and what they asked of the shell."""

    config: NamesrvConfig = field(default_factory=NamesrvConfig)
    now_ms: int = 0
    kv_saves: int = 0
    changes: list[MinBrokerIdChange] = field(default_factory=list)
    disk_is_full: bool = False

    def __post_init__(self) -> None:
        self.routes = RouteInfoManager()
        self.kv = KVConfigManager()
        self.channel = FakeChannel()
        self.disk = MemoryDisk()
        self.live = LiveConfig(
            (self.config,), known_keys, check=check_values, server="the name server"
        )
        self.elsewhere: dict[str, RemotingCommand | Exception] = {}
        self.processors = name_server_processors(
            NamesrvServices(
                config=self.config,
                routes=self.routes,
                kv=self.kv,
                now_ms=lambda: self.now_ms,
                started_ms=self.now_ms,
                save_kv=self._save_kv,
                change_config=ConfigChanges(self.live, self.disk, "/n/n.conf").change,
                notify=self.changes.extend,
                call=self._call,
            )
        )

    async def _save_kv(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.disk_is_full:
            raise StoreIOError("kvConfig.json", "No space left on device")
        self.kv_saves += 1

    async def _call(
        self, address: str, request: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        answer = self.elsewhere[address]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def serve(self, request: RemotingCommand, channel: object = None) -> RemotingCommand:
        """The answer to a request, as the server makes it."""
        process = self.processors[request.code]  # type: ignore[index]
        try:
            answer = process(request, channel or self.channel)  # type: ignore[arg-type]
            if isinstance(answer, Deferred):
                answer = trio.run(answer.run)
        except RequestRefused as refusal:
            answer = request.answer(refusal.code, refusal.remark)
        assert isinstance(answer, RemotingCommand)
        return answer

    def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        """The answer to a request of the present version with these ext fields."""
        texts = {name.removeprefix("_"): str(value) for name, value in fields.items()}
        return self.serve(RemotingCommand(code, ext_fields=texts, body=body))
