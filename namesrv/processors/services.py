"""NamesrvServices: the state and callbacks that the processors of one name server share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from ...disk.errors import StoreError
from ...remoting.channel import Deferred
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.response_codes import ResponseCode
from ..config import NamesrvConfig
from ..kv_config import KVConfigManager
from ..registration import MinBrokerIdChange
from ..route_info_manager import RouteInfoManager


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvServices:
    """The state of a name server, and the callbacks into its shell.

    Attributes:
      config: read at every request: UPDATE_NAMESRV_CONFIG changes it in place.
      routes: the route table.
      kv: the KV table.
      now_ms: monotonic time.
      started_ms: when this name server started, on the same clock.
      save_kv: writes the KV table; raises StoreError.
      change_config: changes and saves settings; see `ConfigChanges.change`.
      notify: sends NOTIFY_MIN_BROKER_ID_CHANGE; never blocks.
      call: asks another server; see `RemotingClient.call`.
    """

    config: NamesrvConfig
    routes: RouteInfoManager
    kv: KVConfigManager
    now_ms: Callable[[], int]
    started_ms: int
    save_kv: Callable[[], Awaitable[None]]
    change_config: Callable[[bytes, str], Awaitable[Mapping[str, str]]]
    notify: Callable[[Iterable[MinBrokerIdChange]], None]
    call: Callable[[str, RemotingCommand, float], Awaitable[RemotingCommand]]


def answer_when_saved(
    request: RemotingCommand, what: str, save: Callable[[], Awaitable[None]]
) -> Deferred:
    """Answer success once a change is on disk.

    If the write fails, RocketMQ answers success. This name server answers SYSTEM_ERROR, with a
    remark that the change is in effect but will be lost at a restart.

    Args:
      what: names the changed thing in the remark.
      save: writes it; raises StoreError.
    """
    return Deferred(partial(_answer_when_saved, request, what, save))


async def _answer_when_saved(
    request: RemotingCommand, what: str, save: Callable[[], Awaitable[None]]
) -> RemotingCommand:
    try:
        await save()
    except StoreError as error:
        remark = f"{what} is changed but not saved: {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark) from error
    return request.answer()
