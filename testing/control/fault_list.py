"""The faults that were injected through the control port, by their numbers."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ...remoting.response_codes import ResponseCode
from ..faults import Faults
from ..faulty_processors import Fault
from .requests import ControlError, FaultKind, NewFault

FAULTS_MAX: Final = 1_000
"""Faults that are remembered. Each request passes all that are not used up; a test needs a few."""

DELAY_MS: Final = 1_000
"""The delay if none is given: long beside any answer, and shorter than any client's time-out."""

REMARK: Final = "refused on request of the test"


class _Listed(NamedTuple):
    kind: FaultKind
    server: str
    fault: Fault


class FaultList:
    """Injects faults, and remembers them until they are deleted, so that their hits can be read."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._listed: dict[int, _Listed] = {}
        self._last_id = 0

    def add(self, wanted: NewFault) -> int:
        """Inject a fault; returns its number.

        Raises: ControlError: 409: there are FAULTS_MAX that are not used up.
        """
        if len(self._listed) >= FAULTS_MAX:
            self._forget_one_used_up()
        self._last_id += 1
        fault = self._inject(wanted)
        self._listed[self._last_id] = _Listed(wanted.kind, wanted.server, fault)
        return self._last_id

    def _forget_one_used_up(self) -> None:
        for number, listed in self._listed.items():
            if listed.fault.left == 0:
                self.remove(number)
                return
        raise ControlError(409, f"{FAULTS_MAX} faults are waiting for requests: delete some")

    def _inject(self, wanted: NewFault) -> Fault:
        faults, code, times = self._faults, wanted.code, wanted.times
        namesrv = wanted.server == "namesrv"
        match wanted.kind:
            case "drop":
                return faults.drop(code, times=times, namesrv=namesrv)
            case "swallow":
                return faults.swallow(code, times=times, namesrv=namesrv)
            case "duplicate":
                return faults.duplicate(code, times=times, namesrv=namesrv)
            case "disconnect":
                return faults.disconnect(code, times=times, namesrv=namesrv)
            case "hang":
                return faults.hang(code, times=times, namesrv=namesrv)
            case "delay":
                delay_ms = DELAY_MS if wanted.delay_ms is None else wanted.delay_ms
                return faults.delay(code, delay_ms / 1000, times=times, namesrv=namesrv)
        remark = REMARK if wanted.remark is None else wanted.remark
        is_change = wanted.kind == "change"
        usual = ResponseCode.FLUSH_SLAVE_TIMEOUT if is_change else ResponseCode.SYSTEM_BUSY
        response = usual if wanted.answer_code is None else wanted.answer_code
        inject = faults.change if is_change else faults.refuse
        return inject(code, response, remark, times=times, namesrv=namesrv)

    def facts(self) -> list[dict[str, Any]]:
        """What is known of each fault, the oldest first."""
        return [
            {
                "id": number,
                "kind": listed.kind,
                "server": listed.server,
                "code": listed.fault.code,
                "times_left": listed.fault.left,
                "hits": listed.fault.hits,
            }
            for number, listed in self._listed.items()
        ]

    def remove(self, number: int) -> None:
        """Remove and forget a fault. Raises: ControlError: 404: there is none of this number."""
        listed = self._listed.pop(number, None)
        if listed is None:
            raise ControlError(404, f"there is no fault {number}")
        self._faults.remove(listed.fault)

    def clear(self) -> None:
        """Remove and forget all; the disk stays as it is."""
        for number in list(self._listed):
            self.remove(number)
