"""The names in a cluster, asked for without a client: for a shell's completion, and for hints.

Both have to be quick: a shell waits for a completion, and importing the client takes longer than
the answer. So this opens plain sockets, asks all servers at once under one deadline, and reads the
few members of the answers that have names.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ..common.topic_names import (
    DLQ_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    is_own_group,
    is_system_topic,
)
from ..remoting.cluster_url import ClientUrl, parse_url
from ..remoting.request_codes import RequestCode
from ..remoting.signature import Credentials, credentials_of, sign
from ..remoting.tls_options import TlsOptions, TlsSettings, settings_of, tls_settings_of

if TYPE_CHECKING:
    from ssl import SSLContext

ANSWER_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of an answer, as of every frame. RocketMQ: com.rocketmq.remoting.frameMaxLength."""

NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})
_WORD: Final = struct.Struct(">i")

NEAR_RATIO: Final = 0.75
"""From here on, by difflib's measure, one name is taken for a slip of the other: `Oders` for
`Orders` (0.91), and not `billing` for `building-events` (0.55)."""


class NamesError(Exception):
    """No server gave the names in time, or one gave something else."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster to ask.

    Attributes:
      credentials: None: requests are not signed.
      tls: of connections; None: they use none.
      deadline_s: `time.monotonic()` at which every question gives up.
    """

    url: ClientUrl
    credentials: Credentials | None
    tls: SSLContext | None
    deadline_s: float

    @classmethod
    def of(
        cls,
        url: str,
        environment: Mapping[str, str],
        timeout_s: float,
        flags: TlsSettings | None = None,
    ) -> Cluster:
        """The cluster of a URL, with the account of the environment if it has none.

        Args:
          flags: what they say of TLS.

        Raises: NamesError: the URL or the environment is not valid.
        """
        try:
            parsed = parse_url(url)
            settings = (
                (flags or TlsSettings())
                .over(settings_of(parsed.tls))
                .over(tls_settings_of(environment))
            )
            tls = _context_of(settings.tls)
            credentials = parsed.credentials or credentials_of(environment)
        except (ValueError, OSError) as error:
            raise NamesError(str(error)) from error
        return cls(parsed, credentials, tls, time.monotonic() + timeout_s)

    def topics(self, *, is_all: bool = False) -> list[str]:
        """The topics of programs, sorted. Raises: NamesError.

        Args:
          is_all: RocketMQ's own, too, without the URL's namespace where they have it.
        """
        answer = self._name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        names = _texts(answer.get("topicList"))
        if is_all:
            return sorted({*names, *map(self._short, names)})
        info = self._info()
        # A broker and a cluster have one topic each, and a cluster one for replies.
        own = {*_table(info.get("brokerAddrTable")), *_table(info.get("clusterAddrTable"))}
        own |= {f"{name}_REPLY_TOPIC" for name in own}
        return self._ours(name for name in names - own if not _is_own(name))

    def groups(self, *, is_all: bool = False) -> list[str]:
        """The consumer groups of programs, sorted: those of the masters that answer in time.

        Args:
          is_all: as for `topics`; what is not among them is nowhere, so every master must answer.

        Raises: NamesError.
        """
        names: set[str] = set()
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        for answer in self._masters(code, are_all_needed=is_all):
            names |= _table(answer.get("subscriptionGroupTable")).keys()
        if is_all:
            return sorted({*names, *map(self._short, names)})
        return self._ours(name for name in names if not is_own_group(name))

    def members(self, group: str) -> list[str]:
        """The client ids of a group's members, sorted. Raises: NamesError."""
        namespace = self.url.namespace
        full = f"{namespace}%{group}" if namespace else group
        fields = {"consumerGroup": full}
        answers = self._masters(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        return sorted({name for each in answers for name in _texts(each.get("consumerIdList"))})

    def brokers(self) -> list[str]:
        """The names of the brokers, sorted. Raises: NamesError."""
        return sorted(_table(self._info().get("brokerAddrTable")))

    def clusters(self) -> list[str]:
        """The names of the clusters, sorted. Raises: NamesError."""
        return sorted(_table(self._info().get("clusterAddrTable")))

    def _info(self) -> Mapping[str, Any]:
        return self._name_server(RequestCode.GET_BROKER_CLUSTER_INFO)

    def _ours(self, names: Iterable[str]) -> list[str]:
        """Names without the URL's namespace; those of others are left out."""
        if not self.url.namespace:
            return sorted(names)
        return sorted(self._short(name) for name in names if name != self._short(name))

    def _short(self, name: str) -> str:
        """A name without the URL's namespace, which stands behind the prefix of a retry topic."""
        if not self.url.namespace:
            return name
        prefix = next(filter(name.startswith, (RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX)), "")
        return prefix + name.removeprefix(prefix).removeprefix(f"{self.url.namespace}%")

    def _name_server(self, code: RequestCode) -> Mapping[str, Any]:
        """What the first name server that answers says."""
        return self._all(self.url.name_servers, code, {}, wanted=1)[0]

    def _masters(
        self,
        code: RequestCode,
        fields: Mapping[str, str] = NO_FIELDS,
        *,
        are_all_needed: bool = False,
    ) -> list[Mapping[str, Any]]:
        """What the masters say, those that answer in time."""
        table = _table(self._info().get("brokerAddrTable"))
        by_id = [_table(_table(each).get("brokerAddrs")) for each in table.values()]
        # Number 0 is the master; the tolerant reader gives a number, JSON a string.
        addresses = [each.get("0", each.get(0)) for each in by_id]
        masters = [each for each in addresses if isinstance(each, str)]
        if not masters:
            raise NamesError("there is no master")
        found = self._all(masters, code, fields, wanted=len(masters))
        if are_all_needed and len(found) < len(addresses):
            raise NamesError(f"only {len(found)} of {len(addresses)} masters answered")
        return found

    def _all(
        self, addresses: Iterable[str], code: RequestCode, fields: Mapping[str, str], *, wanted: int
    ) -> list[Mapping[str, Any]]:
        """The first `wanted` answers of servers that are asked at once; at least one."""
        done = threading.Condition()
        answers: list[Mapping[str, Any]] = []
        errors: list[Exception] = []

        def ask(address: str) -> None:
            try:
                answer = self._ask(address, code, dict(fields))
            except (OSError, ValueError, RecursionError, NamesError) as error:
                is_late = isinstance(error, TimeoutError)
                with done:
                    errors.append(NamesError("no answer in time") if is_late else error)
                    done.notify()
            else:
                with done:
                    answers.append(answer)
                    done.notify()

        threads = [threading.Thread(target=ask, args=(each,), daemon=True) for each in addresses]
        for thread in threads:
            thread.start()
        with done:
            done.wait_for(
                lambda: len(answers) >= wanted or len(answers) + len(errors) == len(threads),
                max(self.deadline_s - time.monotonic(), 0),
            )
            if not answers:
                raise NamesError(str(errors[0]) if errors else "no answer in time")
            return list(answers)

    def _ask(self, address: str, code: RequestCode, fields: dict[str, str]) -> Mapping[str, Any]:
        """One request and its answer. Raises: OSError; ValueError; NamesError."""
        if self.credentials is not None:
            account = self.credentials
            sign(fields, b"", account.access_key, account.secret_key, account.security_token)
        head = json.dumps(
            {"code": code, "flag": 0, "language": "PYTHON", "opaque": 1, "version": 0}
            | {"serializeTypeCurrentRPC": "JSON", "extFields": fields}
        ).encode()
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(
                socket.create_connection((host, int(port)), self._left())
            )
            if self.tls is not None:
                connection = stack.enter_context(
                    self.tls.wrap_socket(connection, server_hostname=host)
                )
            connection.sendall(_WORD.pack(4 + len(head)) + _WORD.pack(len(head)) + head)
            (size,) = _WORD.unpack(self._read(connection, 4))
            if not 4 <= size <= ANSWER_SIZE_MAX:
                raise NamesError(f"{address} does not speak RocketMQ's protocol")
            frame = self._read(connection, size)
        (mark,) = _WORD.unpack_from(frame)
        end = 4 + (mark & 0xFFFFFF)
        header = json.loads(frame[4:end]) if mark >> 24 == 0 else None
        if not isinstance(header, dict) or header.get("code") != 0:
            raise NamesError(f"{address} refused the request {code.name}")
        return _table(_decoded(frame[end:]))

    def _read(self, connection: socket.socket, size: int) -> bytes:
        pieces = bytearray()
        while len(pieces) < size:
            connection.settimeout(self._left())
            piece = connection.recv(min(size - len(pieces), 65_536))
            if not piece:
                raise NamesError("a server closed the connection")
            pieces += piece
        return bytes(pieces)

    def _left(self) -> float:
        left = self.deadline_s - time.monotonic()
        if left <= 0:
            raise NamesError("no answer in time")
        return left


def _context_of(tls: TlsOptions | bool) -> SSLContext | None:
    """Raises: ValueError: a file cannot be used."""
    if not tls:
        return None
    from ..remoting.tls_options_context import options_context  # imports ssl

    return options_context(TlsOptions() if tls is True else tls)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that is most likely meant, if one is near."""
    from difflib import get_close_matches  # takes 10 ms, which only an error should cost

    by_lower = {each.lower(): each for each in names}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=NEAR_RATIO)
    return by_lower[found[0]] if found else None


def _is_own(topic: str) -> bool:
    """Whether a topic is RocketMQ's, by its name; 5.5 has some that no earlier version knew."""
    prefixes = (RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX, "RMQ_SYS_")
    return is_system_topic(topic) or topic.upper().startswith(prefixes)


def _decoded(body: bytes) -> object:
    """A body that fastjson wrote; brokers of 4.x leave the quotes off numbers that are names.

    Raises: NamesError: it is invalid.
    """
    try:
        return json.loads(body)
    except ValueError:
        from ..remoting.errors import RemoteProtocolError
        from ..remoting.fastjson_reader import read  # rare, and takes 10 ms

    try:
        return read(body.decode("utf-8", "replace"))
    except RemoteProtocolError as error:
        raise NamesError(str(error)) from error


def _table(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> set[str]:
    return {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()
