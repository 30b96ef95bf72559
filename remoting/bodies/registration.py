"""RegisterBrokerBody: a broker's registration with a name server, as JSON or deflated.

The deflated form is one zlib stream of length-prefixed pieces . Brokers of
5.5.0 deflate the body yet say `compressed:"false"`, so the reader looks at the first byte instead:
JSON cannot begin with the 0x78 of a zlib stream.

Source: RocketMQ 5.3.3 remoting/protocol/body/RegisterBrokerBody.java; recordings.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Generator, Iterator
from typing import Final

import msgspec

from .. import fastjson
from ..errors import RemoteProtocolError
from ..mq_version import CURRENT_VERSION, V5_0_0
from ..schema import U32, Layout
from .base import Body, members_of, object_of
from .data_version import DataVersion
from .topic import STEP_SIZE, TopicConfig, TopicConfigSerializeWrapper

_LENGTH: Final = Layout(length=U32).struct()
_ZLIB_FIRST_BYTE: Final = 0x78
_WRAPPER: Final = "topicConfigSerializeWrapper"
INFLATED_SIZE_MAX: Final = 32 * 1024 * 1024
"""Bytes of an inflated registration, at most: 100,000 topics with the longest names, 255 bytes, or
800,000 usual ones."""

TOPICS_OF_A_STEP: Final = 800
"""Topics that are deflated per step, which takes 2 ms."""
TOPICS_PER_STEP: Final = 1_000
"""Topics of a deflated registration that are read per step, some 5 ms."""


class RegisterBrokerBody(Body):
    """Body of REGISTER_BROKER (103).

    Attributes:
      topic_config_serialize_wrapper: the topics, all of the broker's or some.
      filter_server_list: "host:port" of the broker's filter servers.
    """

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = msgspec.field(default_factory=list)

    @classmethod
    def from_body(cls, body: bytes) -> RegisterBrokerBody:
        """Read either form.

        Raises: RemoteProtocolError: neither form, or it inflates to more than INFLATED_SIZE_MAX.
        """
        if body[:1] == bytes((_ZLIB_FIRST_BYTE,)):
            steps = _from_pieces(_Pieces(_inflate(body)))
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    registration: RegisterBrokerBody = end.value
                    return registration
        return super().from_body(body)

    @classmethod
    def from_body_in_steps(cls, body: bytes) -> Generator[None, None, RegisterBrokerBody]:
        """Read either form in steps. Raises: RemoteProtocolError: as `from_body`."""
        if body[:1] == bytes((_ZLIB_FIRST_BYTE,)):
            return (yield from _from_pieces(_Pieces(_inflate(body))))
        members = members_of(body) if len(body) > STEP_SIZE else None
        if members is None or _WRAPPER not in members:
            return (yield from super().from_body_in_steps(body))
        topics = bytes(members.pop(_WRAPPER))
        yield
        registration = cls.from_body(object_of(members))
        steps = TopicConfigSerializeWrapper.from_body_in_steps(topics)
        registration.topic_config_serialize_wrapper = yield from steps
        return registration

    @classmethod
    def from_tree_in_steps(cls, tree: object) -> Generator[None, None, RegisterBrokerBody]:
        """As `Body.from_tree_in_steps`, with the topics in steps."""
        wrapper = tree.get(_WRAPPER) if isinstance(tree, dict) else None
        if not isinstance(tree, dict) or not isinstance(wrapper, dict):
            return cls.from_tree(tree)
        body = cls.from_tree({**tree, _WRAPPER: {}})
        topics = TopicConfigSerializeWrapper.from_tree_in_steps(wrapper)
        body.topic_config_serialize_wrapper = yield from topics
        return body

    def to_compressed_body(self, *, version: int = CURRENT_VERSION) -> bytes:
        """Write the deflated form.

        Args:
          version: of the peer; below 5.0.0 without attributes, mappings and stateVersion.
        """
        return b"".join(self.compress(version=version))

    def compress(self, *, version: int = CURRENT_VERSION) -> Iterator[bytes]:
        """Write the deflated form in parts; each is of at most TOPICS_OF_A_STEP topics.

        Args:
          version: as `to_compressed_body`.
        """
        wrapper = self.topic_config_serialize_wrapper
        is_5 = version >= V5_0_0
        data_version: dict[str, int] = msgspec.to_builtins(wrapper.data_version)
        if not is_5:
            # Name servers of 4.9 do not know the member.
            del data_version["stateVersion"]
        deflater = zlib.compressobj(zlib.Z_BEST_COMPRESSION)
        topics = iter(wrapper.topic_config_table.values())
        count = _LENGTH.pack(len(wrapper.topic_config_table))
        yield deflater.compress(_piece(fastjson.dumps(data_version)) + count)
        while texts := [
            _piece(topic.to_text(with_attributes=is_5).encode())
            for topic in itertools.islice(topics, TOPICS_OF_A_STEP)
        ]:
            yield deflater.compress(b"".join(texts))
        rest = [_piece(fastjson.dumps(self.filter_server_list))]
        if is_5:
            mappings = (wrapper.topic_queue_mapping_info_map or {}).values()
            rest.append(_LENGTH.pack(len(mappings)))
            rest += [_piece(fastjson.dumps(mapping)) for mapping in mappings]
        yield deflater.compress(b"".join(rest)) + deflater.flush()


def _piece(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, INFLATED_SIZE_MAX)
    except zlib.error as error:
        raise RemoteProtocolError(f"the registration is not a zlib stream: {error}") from error
    if not inflater.eof:
        reason = "is too long" if inflater.unconsumed_tail else "ends in the middle"
        raise RemoteProtocolError(f"the deflated registration {reason}")
    return data


class _Pieces:
    """A reader of the pieces."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def at_end(self) -> bool:
        return self._position == len(self._data)

    def number(self) -> int:
        data = self._take(_LENGTH.size)
        (number,) = _LENGTH.unpack(data)
        return int(number)

    def piece(self) -> bytes:
        return self._take(self.number())

    def array(self) -> Iterator[bytes]:
        for _ in range(self.number()):
            yield self.piece()

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise RemoteProtocolError("the registration is cut off", self._position)
        data = self._data[self._position : end]
        self._position = end
        return data


def _from_pieces(pieces: _Pieces) -> Generator[None, None, RegisterBrokerBody]:
    wrapper = TopicConfigSerializeWrapper(data_version=DataVersion.from_body(pieces.piece()))
    for count, text in enumerate(pieces.array(), 1):
        if count % TOPICS_PER_STEP == 0:
            yield
        config = TopicConfig.from_text(_decoded(text))
        wrapper.topic_config_table[config.topic_name] = config
    servers = fastjson.loads(pieces.piece())
    if not isinstance(servers, list):
        raise RemoteProtocolError("the filter servers of a registration are not a list")
    if not pieces.at_end():
        wrapper.topic_queue_mapping_info_map = dict(map(_mapping, pieces.array()))
    return RegisterBrokerBody(wrapper, [str(server) for server in servers])


def _mapping(text: bytes) -> tuple[str, object]:
    mapping = fastjson.loads(text)
    topic = mapping.get("topic") if isinstance(mapping, dict) else None
    if not isinstance(topic, str):
        raise RemoteProtocolError("a queue mapping of a registration names no topic")
    return topic, mapping


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("a topic of a registration is not UTF-8") from error
