"""Answers to administrators' changes: they wait until the change is saved."""

from __future__ import annotations

from ..remoting.errors import RequestRefused
from ..remoting.response_codes import ResponseCode
from .errors import StoreIOError
from .state_file import StateFile


async def until_saved(file: StateFile) -> None:
    """Wait until an administrator's change is saved.

    Raises: RequestRefused: SYSTEM_ERROR if it could not be saved, because the disk is full or the
      folder is not writable.
    """
    try:
        await file.saved()
    except StoreIOError as error:
        raise unsaved(error) from error


def unsaved(error: StoreIOError) -> RequestRefused:
    """The refusal for a change that is in effect but will be lost at a restart."""
    return RequestRefused(
        ResponseCode.SYSTEM_ERROR, f"the change was made but could not be saved: {error}"
    )
