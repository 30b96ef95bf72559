"""The check of what controller mode keeps beside the log: epochs, and a cut that is unfinished."""

from __future__ import annotations

from ...disk.errors import CorruptRecordError
from ...disk.json_config import read_bytes
from ...disk.os_disk import Disk
from ..ha.epochs import Epochs, decode_epochs
from ..recovery.log_cut import FILE_NAME, LogCut, read_cut
from .findings import Findings, Severity


def check_cut(disk: Disk, root: str, findings: Findings) -> LogCut | None:
    """The cut of the log that a crash has interrupted; None: there is none, or it is not known.

    Raises:
      StoreIOError: it cannot be read.
    """
    path = f"{root}/{FILE_NAME}"
    try:
        cut = read_cut(disk, root)
    except CorruptRecordError as error:
        findings.add(
            Severity.ERROR, "store.cut", path, -1, error.reason,
            "do so before a broker is started, or the store repaired",
        )  # fmt: skip
        return None
    if cut is not None:
        findings.add(
            Severity.ERROR, "store.cut", path, cut.offset,
            f"the log was being cut at {cut.offset} when the broker ended; what followed, up to "
            f"{cut.log_end}, was never confirmed",
            "start trocket's broker, which completes the cut, before a repair or Apache's broker",
        )  # fmt: skip
    return cut


def check_epochs(disk: Disk, path: str, log_end: int, findings: Findings) -> None:
    """Check the file of epochs, if there is one, and its `.bak`.

    Args:
      path: `MessageStoreConfig.epoch_file`.
      log_end: physical offset of the log's end.

    Raises:
      StoreIOError: a file cannot be read.
    """
    epochs, problem = _read(disk, path)
    spare, spare_problem = _read(disk, f"{path}.bak")
    if problem and spare is not None:
        findings.add(
            Severity.WARNING, "epochs.bad", path, -1, problem,
            "the next start takes its .bak, which may lack the newest epoch: that is copied again",
        )  # fmt: skip
    elif problem or (epochs is None and spare_problem):
        findings.add(
            Severity.ERROR, "epochs.bad", path, -1,
            "; its .bak: ".join(filter(None, (problem or "it is missing", spare_problem))),
            "restore it, or remove it and its .bak: a slave then compares its log with the "
            "master's",
        )  # fmt: skip
    known = spare if epochs is None else epochs
    if known and known[-1].start > log_end:
        findings.add(
            Severity.WARNING, "epochs.beyond", path, known[-1].start,
            f"epoch {known[-1].number} begins at {known[-1].start}, the log ends at {log_end}",
            "a broker of controller mode forgets that epoch, and copies from its master again",
        )  # fmt: skip


def _read(disk: Disk, path: str) -> tuple[Epochs | None, str]:
    """The epochs of a file, and why it cannot be used; None and "": it does not exist."""
    if not disk.exists(path):
        return None, ""
    try:
        return decode_epochs(read_bytes(disk, path)), ""
    except ValueError as error:
        return None, str(error)
