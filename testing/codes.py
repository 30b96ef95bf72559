"""Request and response codes, for the injection of faults."""

from __future__ import annotations

from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode

__all__ = ["RequestCode", "ResponseCode"]
