"""What faults are asked for by: request and response codes, under RocketMQ's names."""

from __future__ import annotations

from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode

__all__ = ["RequestCode", "ResponseCode"]
