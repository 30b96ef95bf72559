"""Requests about the KV configuration: 100, 101, 102, 219.

Java counterpart: RocketMQ 5.3.3 namesrv/processor/DefaultRequestProcessor.java.
"""

from __future__ import annotations

from ...remoting.bodies import KVTable
from ...remoting.channel import Channel, Deferred, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.headers import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    decode,
    encode_header,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from .services import NamesrvServices, answer_when_saved


class KVProcessors:
    """Serves the KV configuration of one name server."""

    def __init__(self, services: NamesrvServices) -> None:
        self._kv = services.kv
        self._save = services.save_kv
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.list_namespace,
        }

    def put(self, request: RemotingCommand, _channel: Channel) -> Deferred:
        """PUT_KV_CONFIG 100: set an item; answered when it is on disk."""
        header = decode(PutKVConfigRequestHeader, request.ext_fields)
        self._kv.put(header.namespace, header.key, header.value)
        return answer_when_saved(request, "the KV configuration", self._save)

    def get(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """GET_KV_CONFIG 101: the value of an item; QUERY_NOT_FOUND when there is none."""
        header = decode(GetKVConfigRequestHeader, request.ext_fields)
        value = self._kv.get(header.namespace, header.key)
        fields = encode_header(GetKVConfigResponseHeader(value=value))
        if value is not None:
            return request.answer(ext_fields=fields)
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        return request.answer(ResponseCode.QUERY_NOT_FOUND, remark, fields)

    def delete(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand | Deferred:
        """DELETE_KV_CONFIG 102: remove an item; success also when it does not exist."""
        header = decode(DeleteKVConfigRequestHeader, request.ext_fields)
        if not self._kv.delete(header.namespace, header.key):
            return request.answer()
        return answer_when_saved(request, "the KV configuration", self._save)

    def list_namespace(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """GET_KVLIST_BY_NAMESPACE 219: all items of a namespace; QUERY_NOT_FOUND if never used."""
        header = decode(GetKVListByNamespaceRequestHeader, request.ext_fields)
        items = self._kv.items(header.namespace)
        if items is None:
            remark = f"No config item, Namespace: {header.namespace}"
            return request.answer(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.answer(body=KVTable(table=items).to_body())
