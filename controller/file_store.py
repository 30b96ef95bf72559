"""FileStore: the state of one controller in one file.

The folder is locked, so one process has it, and leads for as long as it runs. Each change replaces
the file (temporary file, fsync, rename); changes that come during a write are written together.

An older state is never used: it could elect a broker that lacks confirmed messages, or give an
epoch to a second master. So a damaged file is an error, although a `.bak` is beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
import trio

from ..disk.errors import CorruptRecordError, StoreIOError, StoreLockedError
from ..disk.json_config import read_bytes, save_json, unsealed
from ..disk.os_disk import Disk
from .broker_set import BrokerSet
from .state_store import (
    NO_REVISION,
    NOTHING,
    VERSION,
    Candidate,
    ConflictError,
    Lease,
    StateError,
    Stored,
    UnavailableError,
    UnreadableError,
    check_version,
    from_tree,
    to_tree,
)

FILE: Final = "controller.json"
"""The file of the sets, in the store's folder."""

LOCK: Final = "lock"
"""The file that one process locks."""

_LEASE: Final = Lease(1, math.inf)


class _Batch:
    """Changes that one write makes."""

    def __init__(self) -> None:
        self.sets: dict[str, BrokerSet | None] = {}
        self.written = False
        self.failure: StoreIOError | None = None


class FileStore:
    """A `StateStore` in a file; see the module.

    Args:
      folder: absolute; created if it is missing.
    """

    renewal_s: Final = math.inf

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._path = str(PurePosixPath(folder) / FILE)
        self._sets: dict[str, Stored] = {}
        self._revision = NO_REVISION
        self._leader: Candidate | None = None
        self._batch = _Batch()
        self._in_work: _Batch | None = None
        self._writing = trio.Lock()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the folder's lock until cancelled.

        Raises:
          StateError: another process has the folder.
          CorruptRecordError, UnreadableError: the file cannot be used.
          StoreIOError: the folder cannot be read or written.
        """
        lock = str(PurePosixPath(self._folder) / LOCK)
        parent = PurePosixPath(self._folder).parent
        # The folder is in its parent on the device, also if an earlier start was killed here: else
        # a power cut takes a state that was answered for, and the next start begins with none.
        parents = [parent]
        while not self._disk.exists(str(parent)) and parent != parent.parent:
            parent = parent.parent
            parents.append(parent)
        self._disk.make_folder(self._folder)
        for each in reversed(parents):
            self._disk.sync_folder(str(each))
        try:
            self._disk.lock(lock)
        except StoreLockedError as error:
            raise StateError(
                f"{self._folder}: another controller uses this folder; stop it, or give this one "
                "another folder (controllerStorePath)"
            ) from error
        try:
            self._load()
            task_status.started()
            await trio.sleep_forever()
        finally:
            self._disk.unlock(lock)

    async def acquire(self, candidate: Candidate) -> Lease | None:
        """Lead; the folder's lock excludes all others."""
        self._leader = candidate
        return _LEASE

    async def renew(self, lease: Lease) -> Lease:
        """The same lease: it does not end."""
        return lease

    async def release(self, lease: Lease) -> None:
        """Lead no longer."""
        self._leader = None

    async def leader(self) -> Candidate | None:
        """This controller, once it leads."""
        return self._leader

    async def wait_for_change(self) -> None:
        """Wait for ever: there is no other controller."""
        await trio.sleep_forever()

    async def read(self) -> dict[str, Stored]:
        """All sets."""
        return dict(self._sets)

    async def read_set(self, name: str) -> Stored:
        """One set."""
        return self._sets.get(name, NOTHING)

    async def swap(self, lease: Lease, name: str, revision: int, after: BrokerSet | None) -> int:
        """Replace a set; it returns once the file is on disk.

        Raises: ConflictError: another revision is stored, or another change of the set is under
          way. UnavailableError: the file could not be written; the set is as before.
        """
        is_under_way = self._in_work is not None and name in self._in_work.sets
        if (
            is_under_way
            or name in self._batch.sets
            or revision != self._sets.get(name, NOTHING).revision
        ):
            raise ConflictError(f"the set {name} was changed meanwhile")
        batch = self._batch
        batch.sets[name] = after
        # What is written must be known here, too.
        with trio.CancelScope(shield=True):
            async with self._writing:
                if not batch.written:
                    await self._write(batch)
        if batch.failure is not None:
            raise UnavailableError(f"the state cannot be saved: {batch.failure}")
        return self._sets.get(name, NOTHING).revision

    async def _write(self, batch: _Batch) -> None:
        self._batch, self._in_work = _Batch(), batch
        revision = self._revision + 1
        sets = dict(self._sets)
        for name, after in batch.sets.items():
            if after is None:
                sets.pop(name, None)
            else:
                sets[name] = Stored(after, revision)
        try:
            if self._disk.threaded:
                await trio.to_thread.run_sync(self._save, sets, revision)
            else:
                self._save(sets, revision)
        except StoreIOError as error:
            batch.failure = error
        else:
            self._sets, self._revision = sets, revision
        finally:
            batch.written = True
            self._in_work = None

    def _save(self, sets: Mapping[str, Stored], revision: int) -> None:
        trees = {
            name: to_tree(each.broker_set) | {"revision": each.revision}
            for name, each in sets.items()
            if each.broker_set is not None
        }
        tree = {"version": VERSION, "revision": revision, "sets": trees}
        save_json(self._disk, self._path, msgspec.json.encode(tree))

    def _load(self) -> None:
        spare = f"{self._path}.bak"
        if not self._disk.exists(self._path):
            if self._disk.exists(spare):
                raise CorruptRecordError(self._path, 0, f"it is missing. {_way_out(spare)}")
            return
        text, is_right = unsealed(read_bytes(self._disk, self._path))
        if is_right is False:
            reason = f"its checksum, the 32 blanks of its last line, is wrong. {_way_out(spare)}"
            raise CorruptRecordError(self._path, 0, reason)
        try:
            tree = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            reason = f"it is not JSON ({error}). {_way_out(spare)}"
            raise CorruptRecordError(self._path, 0, reason) from error
        if not isinstance(tree, dict):
            raise CorruptRecordError(self._path, 0, f"it holds no object. {_way_out(spare)}")
        check_version(tree, self._path)
        try:
            self._revision, self._sets = _sets_of(tree)
        except UnreadableError as error:
            reason = f"{error}. {_way_out(spare)}"
            raise CorruptRecordError(self._path, 0, reason) from error


def _sets_of(tree: dict[str, Any]) -> tuple[int, dict[str, Stored]]:
    revision, trees = tree.get("revision"), tree.get("sets")
    if not isinstance(revision, int) or not isinstance(trees, dict):
        raise UnreadableError("it has no revision, or no sets")
    if unknown := tree.keys() - {"version", "revision", "sets"}:
        raise UnreadableError(f"it has unknown members: {', '.join(sorted(unknown))}")
    sets: dict[str, Stored] = {}
    for name, each in trees.items():
        own = each.pop("revision", None) if isinstance(each, dict) else None
        if not isinstance(own, int) or not NO_REVISION < own <= revision:
            raise UnreadableError(f"the set {name!r} has no revision of this file")
        found = from_tree(each)
        if found.broker_name != name:
            raise UnreadableError(f"the set {name!r} has another name, {found.broker_name!r}")
        sets[name] = Stored(found, own)
    return revision, sets


def _way_out(spare: str) -> str:
    return (
        f"{spare} is the state before the last change. It is not used by itself, because it may "
        "name a master that was deposed: copy it to the file's place only while no broker runs but "
        "the last master of each set"
    )
