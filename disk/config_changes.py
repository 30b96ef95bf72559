"""ConfigChanges: requests to change a server's configuration, one at a time, saved before used.

Part of the shell: it waits for the disk. Broker and name server share it.

Java counterpart: updateBrokerConfig and updateConfig of 5.5.0 broker/processor/
AdminBrokerProcessor.java and namesrv/processor/DefaultRequestProcessor.java; a failed write is
only logged there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import trio

from ..common.config import ConfigError
from ..common.live_config import KeyRefusedError, LiveConfig, edit_properties
from ..common.supervision import FailureLog, call_each
from ..remoting.errors import RequestRefused
from ..remoting.response_codes import ResponseCode
from .errors import StoreError
from .json_config import save_text
from .os_disk import Disk
from .position import START

logger = logging.getLogger(__name__)
_failures = FailureLog(logger)

BLACK_LIST_REMARK: Final = "Can not update config in black list."
"""RocketMQ's remark for a key that no request may change."""


class ConfigChanges:
    """Changes the configuration of one server, and saves what was changed to its file.

    Owned by the server's task. Only the write runs in another thread.

    Args:
      path: of the file, absolute; "" if there is none, and changes are lost at the end.
    """

    def __init__(self, live: LiveConfig, disk: Disk, path: str) -> None:
        self._live = live
        self._disk = disk
        self._path = path
        self._one_at_a_time = trio.Lock()

    @property
    def unsaved_remark(self) -> str:
        """What a client should know of a change: that it ends with the server; "": it is saved."""
        if self._path:
            return ""
        return "in effect until the server ends: it was started without a file to save it in"

    async def change(self, body: bytes, peer: str) -> Mapping[str, str]:
        """Make a change completely, or not at all.

        Args:
          body: properties text, UTF-8.
          peer: address of who asks, for the log.
        Returns: the new values by key; empty: the text has no key.
        Raises: RequestRefused: NO_PERMISSION if a key may not be changed; SYSTEM_ERROR if the text,
          a key or a value is wrong, or the file cannot be written. Nothing was changed then.
        """
        async with self._one_at_a_time:
            try:
                planned = self._live.plan(body)
            except KeyRefusedError as error:
                remark = f"{BLACK_LIST_REMARK} {error.reason}" if error.is_guarded else error.reason
                raise self._refused(ResponseCode.NO_PERMISSION, remark, peer) from error
            except ConfigError as error:
                raise self._refused(ResponseCode.SYSTEM_ERROR, error.reason, peer) from error
            if not planned.values:
                return planned.values
            with trio.CancelScope(shield=True):  # what is saved must take effect
                if self._path:
                    try:
                        await self._save(planned.values)
                    except StoreError as error:
                        remark = f"nothing is changed, because it cannot be saved: {error}"
                        raise self._refused(ResponseCode.SYSTEM_ERROR, remark, peer) from error
                # Before it is in effect: it may be the level of this very line.
                self._log_change(planned.values, peer)
                meaning = "A changed setting may be in effect only partly until a restart"
                call_each(
                    self._live.apply(planned), _failures, "the use of a changed setting", meaning
                )
            return planned.values

    def _log_change(self, values: Mapping[str, str], peer: str) -> None:
        logger.info(
            "%(peer)s set %(settings)s for %(server)s; this is in effect, and %(saved)s",
            {
                "peer": peer,
                "settings": ", ".join(f"{key}={value}" for key, value in values.items()),
                "server": self._live.server,
                "saved": f"saved in {self._path}" if self._path else "lost at its end: no file",
            },
        )

    def _refused(self, code: ResponseCode, remark: str, peer: str) -> RequestRefused:
        logger.warning(
            "a change of settings by %(peer)s is refused: %(reason)s",
            {"peer": peer, "reason": remark},
        )
        return RequestRefused(code, remark)

    async def _save(self, values: Mapping[str, str]) -> None:
        if self._disk.threaded:
            await trio.to_thread.run_sync(self._write, values)
        else:
            self._write(values)

    def _write(self, values: Mapping[str, str]) -> None:
        content = b""
        if self._disk.exists(self._path):
            file = self._disk.open(self._path)
            try:
                content = file.pread(file.size(), START)
            finally:
                file.close()
        # The file may have passwords, such as initAuthenticationUser: its mode must not widen.
        is_private = self._disk.is_private(self._path)
        text = edit_properties(content, values)
        save_text(self._disk, self._path, text, private=is_private)
