"""Runtime information: GET_BROKER_RUNTIME_INFO (28), a table of strings.

Java counterpart: getBrokerRuntimeInfo of AdminBrokerProcessor.java of 5.5.0. Pure.
"""

from __future__ import annotations

from ...common.steps import Steps
from ...disk.errors import StoreError
from ...remoting.bodies import KVTable
from ...remoting.channel import Answer, Channel, Processor, answer_of
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from .runtime_info import RuntimeInfo


class RuntimeInfoProcessor:
    """Answers with the broker's runtime information."""

    def __init__(self, info: RuntimeInfo) -> None:
        self._info = info
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
        }

    def _runtime_info(self, request: RemotingCommand, _: Channel) -> Answer:
        return answer_of(self._answer(request))

    def _answer(self, request: RemotingCommand) -> Steps[RemotingCommand]:
        try:
            table = yield from self._info.table()
        except StoreError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return request.answer(body=KVTable(table=table).to_body())
