"""PlainAclFiles: the files of ACL 1.0, watched, and changed by requests.

Files are read and parsed in a thread: 1,000 accounts in 0.5 s, while requests are served, with
pauses of up to 60 ms; 10,000 in 4 s, with pauses of up to 0.12 s (a busy machine of two cores). The
table of accounts is replaced as a whole: a request sees the old accounts or the new ones.

Java counterpart: acl/plain/PlainPermissionManager.java and srvutil/AclFileWatchService.java of
4.9.7. There a change by request is in the table before it is in the file, and a file that becomes
unreadable between two changes of accounts may leave a part of them.
"""

from __future__ import annotations

import gc
import logging
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import trio

from ..common.clock import Clock
from ..common.config import ConfigError
from ..disk.errors import StoreError
from ..disk.json_config import save_text
from ..disk.os_disk import Disk, explain
from ..remoting.bodies import PlainAccessConfig
from .plain_acl import (
    PlainAcl,
    PlainAclFile,
    read_file,
    with_account,
    with_white_addresses,
    without_account,
)

logger = logging.getLogger(__name__)

WATCH_INTERVAL_S: Final = 0.5
"""Between two looks at the files. Source: AclFileWatchService.WATCH_INTERVAL."""

MAIN_FILE: Final = "plain_acl.yml"
FOLDER: Final = "acl"
TOOLS_FILE: Final = "tools.yml"
"""The credentials of mqadmin, which are no accounts."""

FILES_MAX: Final = 1_000
"""Files of one broker; each look at them reads all."""

_SUFFIXES: Final = (".yml", ".yaml")
_DEPTH_MAX: Final = 16
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

_Texts = dict[str, bytes]
"""The text of each file by its path, in the order in which they count."""


_Edit = Callable[[PlainAcl, int], str | None]
"""Edits a file of these accounts, at this time in ms since 1970; returns its path, None: it changed
nothing."""


class _Read(NamedTuple):
    texts: _Texts
    acl: PlainAcl


class PlainAclFiles:
    """The accounts of one broker, from `plain_acl.yml` and the folder `acl` beside it.

    Owned by the broker's task; files are read and written in other threads.

    Args:
      folder: RocketMQ's folder `conf`.
      clock: its wall time is part of a file's version.
      disk: writes files.

    Attributes:
      acl: the accounts now.
      main_path: where a new account is written.
      folder: as above, absolute.
      loaded_ms: when it was made, ms since 1970; the version of files without one.
    """

    def __init__(self, folder: str, *, clock: Clock, disk: Disk) -> None:
        self.folder = str(Path(folder).absolute())
        self.main_path = str(Path(self.folder, MAIN_FILE))
        self.acl = PlainAcl()
        self._clock, self._disk = clock, disk
        self._texts: _Texts = {}
        self._seen: _Texts = {}
        self._trouble = ""
        self._one_at_a_time = trio.Lock()
        self.loaded_ms = clock.wall_ms()
        self._parsed: dict[tuple[str, bytes], PlainAclFile] = {}
        self._said: set[str] = set()

    def load(self) -> None:
        """Read the files at the start.

        Raises: ConfigError: there is no file, or one of them cannot be used.
        """
        try:
            texts = _read_texts(self.folder, self.main_path)
        except OSError as error:
            raise _unreadable(error, self.folder) from error
        if not texts:
            raise ConfigError(
                f"aclEnable=true: there is no {MAIN_FILE} and no file in the folder {FOLDER}, so "
                "every request would be refused: write one, or set aclConfigPath to its folder",
                path=self.folder,
            )
        self._take(_Read(texts, PlainAcl(self._parse(texts))))
        if not self.acl.accounts:
            logger.warning(
                "the files of access control in %(folder)s have no account, so requests are "
                "refused unless their address is in a white list: add accounts",
                {"folder": self.folder},
            )

    def version_of(self, file: PlainAclFile) -> dict[str, int]:
        """The dataVersion of a file; one without: the time when it was first read."""
        version = file.version
        return {"counter": version.counter, "timestamp": version.timestamp or self.loaded_ms}

    async def run(self) -> None:
        """Watch the files until cancelled."""
        while True:
            await trio.sleep(WATCH_INTERVAL_S)
            await self.look()

    async def look(self) -> bool:
        """Take the accounts of files that have changed, and are the same at two looks in a row.

        Files that cannot be used change nothing: the accounts stay as they were, and a log line
        says why, once.

        Returns: whether the accounts were read anew.
        """
        async with self._one_at_a_time:
            return await self._look()

    async def update_account(self, config: PlainAccessConfig) -> None:
        """Add an account, or change the values of one that are not None; saved, then used.

        Raises:
          PlainAclError: a value cannot be used.
          ConfigError: its file cannot be read or written.
        """

        def edit(acl: PlainAcl, now_ms: int) -> str | None:
            path = acl.file_of.get(config.access_key or "", self.main_path)
            text = with_account(_text_of(path), path, config, now_ms)
            self._save(path, text)
            return path

        await self._change(edit)

    async def delete_account(self, access_key: str) -> bool:
        """Remove an account; false if there is none with this key.

        Raises: ConfigError: its file cannot be read or written.
        """

        def edit(acl: PlainAcl, now_ms: int) -> str | None:
            path = acl.file_of.get(access_key)
            if path is None:
                return None
            text = without_account(_text_of(path), path, access_key, now_ms)
            if text is not None:
                self._save(path, text)
            return None if text is None else path

        return await self._change(edit)

    async def set_white_addresses(self, addresses: Sequence[str], path: str) -> bool:
        """Replace the global white list of a file.

        Args:
          path: of one of the files; "": the main one.
        Returns: False if this is not one of the files.
        Raises:
          PlainAclError: an address is invalid.
          ConfigError: the file cannot be read or written.
        """

        def edit(acl: PlainAcl, now_ms: int) -> str | None:
            wanted = str(Path(path).absolute()) if path else self.main_path
            if wanted != self.main_path and wanted not in {file.path for file in acl.files}:
                return None
            self._save(wanted, with_white_addresses(_text_of(wanted), wanted, addresses, now_ms))
            return wanted

        return await self._change(edit)

    async def _change(self, edit: _Edit) -> bool:
        """Edit the files as they are now, and use the result.

        Args:
          edit: called in a thread.
        """
        async with self._one_at_a_time:
            with trio.CancelScope(shield=True):  # what is saved must be used
                now_ms = self._clock.wall_ms()
                changed = await trio.to_thread.run_sync(_edit, edit, self.acl, now_ms)
                if changed is not None:
                    await self._look(at_once=True)
            if changed is not None and self._trouble:
                raise ConfigError(f"it is saved, but not in use: {self._trouble}")
            return changed is not None

    async def _look(self, *, at_once: bool = False) -> bool:
        try:
            read = await trio.to_thread.run_sync(self._read_changed, at_once)
        except ConfigError as error:
            self._keep(str(error))
            return False
        except OSError as error:
            self._keep(str(_unreadable(error, self.folder)))
            return False
        self._trouble = ""
        if read is None:
            return False
        self._take(read)
        logger.info(
            "the access control files in %(folder)s have changed; %(accounts)s accounts are in use",
            {"folder": self.folder, "accounts": len(read.acl.accounts)},
        )
        return True

    def _read_changed(self, at_once: bool) -> _Read | None:
        """In a thread: the accounts, if a file has changed."""
        texts = _read_texts(self.folder, self.main_path)
        # An editor may have written only a part of the file at the first look, so two looks must
        # see the same.
        is_settled = at_once or texts == self._seen
        self._seen = texts
        if texts == self._texts or not is_settled:
            return None
        if not texts:
            raise ConfigError("there is no file of accounts any more", path=self.folder)
        return _Read(texts, PlainAcl(self._parse(texts)))

    def _parse(self, texts: _Texts) -> list[PlainAclFile]:
        """Parse what is not parsed yet: with many files, a change of one costs one."""
        with _without_collections():
            files = {
                item: self._parsed.get(item) or read_file(item[1], item[0])
                for item in texts.items()
            }
        self._parsed = files
        return list(files.values())

    def _take(self, read: _Read) -> None:
        known = set(self.acl.warnings)
        self._texts, self.acl = read
        for warning in read.acl.warnings:
            if warning not in known:
                logger.warning("%(warning)s", {"warning": warning})
        for path in read.texts:
            self._warn_of_mode(path)

    def _warn_of_mode(self, path: str) -> None:
        try:
            is_open = bool(Path(path).stat().st_mode & _OTHERS)
        except OSError:
            return  # the next look says so
        if is_open and path not in self._said:
            self._said.add(path)
            logger.warning(
                "%(path)s holds secrets, and other users of this machine may read it: chmod 600",
                {"path": path},
            )

    def _keep(self, trouble: str) -> None:
        if trouble != self._trouble:
            logger.error(
                "changed access control files are not used: %(trouble)s. The accounts stay as they "
                "were; correct the file; it is read again at once",
                {"trouble": trouble},
            )
        self._trouble = trouble

    def _save(self, path: str, text: bytes) -> None:
        """In a thread: write a file, with mode 0600; its first version is kept as `.bak`."""
        try:
            save_text(self._disk, str(Path(path).resolve()), text, private=True)
        except StoreError as error:
            raise ConfigError(f"nothing is changed, because it cannot be saved: {error}") from error


@contextmanager
def _without_collections() -> Iterator[None]:
    """Do without the garbage collector for some seconds at most."""
    was_enabled = gc.isenabled()
    # PyYAML makes a hundred objects for each account. A collection looks at all of them while no
    # other thread runs: 0.8 s with 10,000 accounts.
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _edit(edit: _Edit, acl: PlainAcl, now_ms: int) -> str | None:
    try:
        return edit(acl, now_ms)
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {explain(error)}") from error


def _text_of(path: str) -> bytes:
    """The text of a file; b"" if there is none. Raises: OSError: it cannot be read."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return b""


def _read_texts(folder: str, main_path: str) -> _Texts:
    """The strings of all files: those of the folder `acl` by name, the main one last, as RocketMQ.

    Raises: OSError: a file or folder cannot be read. ConfigError: there are too many.
    """
    paths = list(_paths_in(Path(folder, FOLDER), 0))
    if Path(main_path).exists():
        paths.append(main_path)
    if len(paths) > FILES_MAX:
        reason = f"there are {len(paths)} files of accounts, the limit is {FILES_MAX}: join them"
        raise ConfigError(reason, path=folder)
    return {path: _text_of(path) for path in paths}


def _paths_in(folder: Path, depth: int) -> Iterator[str]:
    if depth > _DEPTH_MAX or not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.is_file():
            if path.suffix in _SUFFIXES and path.name != TOOLS_FILE:
                yield str(path)
        elif path.is_dir():
            yield from _paths_in(path, depth + 1)


def _unreadable(error: OSError, folder: str) -> ConfigError:
    path = error.filename if isinstance(error.filename, str) else folder
    return ConfigError(f"it cannot be read: {explain(error)}", path=path)
