"""The permanent id of a broker in its set, and the files that keep it.

`brokerIdentity` has `cluster#name#id`. Before a controller has given the id, `brokerIdentity-temp`
has `cluster#name#id#code`: a broker that lost the answer asks again with the same code, and gets
the same id. Both are replaced whole, so a crash leaves the old file or the new one.

Source: MetadataFile, BrokerMetadata and TempBrokerMetadata of RocketMQ 5.5.0, which deletes a file
before it writes it.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final, NamedTuple

from ...common.config import ConfigError
from ...disk.json_config import read_bytes, write_copy
from ...disk.os_disk import Disk
from ...remoting.bodies.controller import REPLICA_ID_MAX

FILE_SIZE_MAX: Final = 4096
"""Bytes of a file of identity: two names and two short fields."""


class Application(NamedTuple):
    """An id that the broker has asked for.

    Attributes:
      controller_id: 1 or more.
      check_code: by which the controller knows the same broker again.
    """

    controller_id: int
    check_code: str


class IdentityFiles:
    """The two files of one broker.

    Args:
      path: of `brokerIdentity`.
      cluster_name, broker_name: the set that the configuration names.
    """

    def __init__(self, disk: Disk, path: str, cluster_name: str, broker_name: str) -> None:
        self._disk = disk
        self._path = path
        self._temporary = f"{path}-temp"
        self._names = (cluster_name, broker_name)

    def controller_id(self) -> int | None:
        """The broker's id; None: it has none yet.

        Raises:
          ConfigError: the file is damaged, or of another set.
          StoreIOError: it could not be read.
        """
        fields = self._fields(self._path, 3)
        return None if fields is None else self._id(self._path, fields[2])

    def application(self) -> Application | None:
        """The id that was asked for and not confirmed; None: there is none.

        A file that cannot be used counts as none: no broker has that id for certain.

        Raises: StoreIOError: the file could not be read.
        """
        try:
            fields = self._fields(self._temporary, 4)
            if fields is None:
                return None
            return Application(self._id(self._temporary, fields[2]), fields[3])
        except ConfigError:
            return None

    def note_application(self, application: Application) -> None:
        """Record an id before it is asked for. Raises: StoreIOError: it could not be written."""
        self._write(self._temporary, str(application.controller_id), application.check_code)

    def forget_application(self) -> None:
        """Forget an id that was refused. Raises: StoreIOError: the file could not be removed."""
        self._disk.unlink(self._temporary)

    def settle(self, controller_id: int) -> None:
        """Record the id that the controller has given. Raises: StoreIOError: as `_write`."""
        self._write(self._path, str(controller_id))
        self._disk.unlink(self._temporary)

    def _fields(self, path: str, count: int) -> list[str] | None:
        if not self._disk.exists(path):
            return None
        try:
            fields = read_bytes(self._disk, path)[:FILE_SIZE_MAX].decode().strip().split("#")
        except UnicodeDecodeError as error:
            raise self._damaged(path) from error
        if len(fields) != count:
            raise self._damaged(path)
        if tuple(fields[:2]) != self._names:
            raise ConfigError(
                f"the data folder is that of broker {fields[1]} of cluster {fields[0]}, and the "
                f"configuration names broker {self._names[1]} of cluster {self._names[0]}: correct "
                "brokerName and brokerClusterName, or take another storePathRootDir",
                path=path,
            )
        return fields

    def _id(self, path: str, text: str) -> int:
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:11]) <= REPLICA_ID_MAX):
            raise self._damaged(path)
        return int(text)

    def _damaged(self, path: str) -> ConfigError:
        return ConfigError(
            "it is damaged: it should have cluster#brokerName#id. If the controller knows this "
            "broker (trocket controller status), write its id there; otherwise remove the file, "
            "and the broker gets another id",
            path=path,
        )

    def _write(self, path: str, *more: str) -> None:
        folder = str(PurePosixPath(path).parent)
        self._disk.make_folder(folder)
        write_copy(self._disk, path, "#".join((*self._names, *more)).encode(), private=False)
        self._disk.sync_folder(folder)
