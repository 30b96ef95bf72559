"""Requests about RocksDB, which this broker does not use: CHECK_ROCKSDB_CQ_WRITE_PROGRESS 354,
EXPORT_ROCKSDB_CONFIG_TO_JSON 355, POP_ROLLBACK 200056.

The answers are those of a RocketMQ broker with consume queues and tables in files: there is nothing
to check or to export.

Java counterpart: checkRocksdbCqWriteProgress, transferPopToFsStore and exportRocksDBConfigToJson of
AdminBrokerProcessor.java, ExportRocksDBConfigToJsonRequestHeader.java of 5.5.0. Pure.
"""

from __future__ import annotations

from typing import Final

from ...remoting.bodies import CheckRocksdbCqWriteResult
from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import ExportRocksDBConfigToJsonRequestHeader, decode
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import NOT_SET, ResponseCode

CHECK_IN_PROGRESS: Final = 2
"""Source: CheckRocksdbCqWriteResult.CheckStatus. RocketMQ checks after the answer, and writes the
result, that there is nothing to check, to its log only."""

CONFIG_TYPES: Final = ("topics", "subscriptionGroups", "consumerOffsets")
"""The tables that can be kept in RocksDB; requests may name them in any case."""


class RocksDbProcessor:
    """Answers that nothing is in RocksDB."""

    def __init__(self) -> None:
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: self._check,
            RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: self._export,
            RequestCode.POP_ROLLBACK: self._roll_back,
        }

    def _check(self, request: RemotingCommand, _: Channel) -> Answer:
        body = CheckRocksdbCqWriteResult(check_status=CHECK_IN_PROGRESS).to_body()
        return request.answer(remark=NOT_SET, body=body)

    def _export(self, request: RemotingCommand, _: Channel) -> Answer:
        header = decode(ExportRocksDBConfigToJsonRequestHeader, request.ext_fields)
        known = {name.lower() for name in CONFIG_TYPES}
        for name in header.config_type.split(";"):
            if name and name.strip().lower() not in known:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"Unknown config type: {name}; the types are {', '.join(CONFIG_TYPES)}",
                )
        return request.answer(remark="export done.")

    def _roll_back(self, request: RemotingCommand, _: Channel) -> Answer:
        """Answer that the revive topic has the pop state of RocksDB, as there is no RocksDB."""
        return request.answer(remark=NOT_SET)
