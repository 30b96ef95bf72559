"""Known differences: what our gRPC service does otherwise than Apache's proxy, with the reason.

Each entry names a row of docs/quirks.md. An entry that covers nothing in a whole run is an error,
so that a difference that is gone leaves the list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..wire_differ.normalise import matches
from ..wire_differ.tree import Difference


@dataclass(frozen=True, kw_only=True)
class Known:
    """An expected difference.

    Attributes:
      row: the beginning of the row of docs/quirks.md.
      calls: as "Method: name", with the wildcards `*` and `?`.
      paths: the differing values, as in normalisers; all differences of a call must be covered.
      sign: a regular expression that one of the call's differences matches, written as
        `path: ours / theirs`.
    """

    row: str
    calls: tuple[str, ...]
    paths: tuple[str, ...]
    sign: str = ""

    def is_about(self, call: str, found: Sequence[Difference]) -> bool:
        """Whether it applies to a call, "Method: name", that has these differences."""
        return any(fnmatchcase(call, pattern) for pattern in self.calls) and any(
            re.search(self.sign, str(difference)) for difference in found
        )

    def covers(self, difference: Difference) -> bool:
        """Whether it is this difference."""
        return any(matches(difference.path, tuple(path.split("."))) for path in self.paths)


def explained(call: str, found: Sequence[Difference], known: Sequence[Known]) -> list[Known] | None:
    """The entries that cover all differences of a call; None: one is not covered."""
    about = [each for each in known if each.is_about(call, found)]
    used: list[Known] = []
    for difference in found:
        covering = next((each for each in about if each.covers(difference)), None)
        if covering is None:
            return None
        if covering not in used:
            used.append(covering)
    return used


_ANY = ("*",)
_STATUS = ("answers.0.status.*", "answers.0.entries.*.status.*")
_ANSWER = ("answers", "answers.**")
_STREAM = ("grpc", "details", *_ANSWER)
_HTTP = ("reset", ":status", "content-type", "grpc-status", "grpc-message")
_UNKNOWN_TOPIC = "40402 / (40014|50001)"

_ROUTES = (
    Known(
        row="a route has the address and port of the request",
        calls=("QueryRoute: *", "QueryAssignment: *"),
        paths=(
            "answers.0.message_queues.*.broker.endpoints.**",
            "answers.0.assignments.*.message_queue.broker.endpoints.**",
        ),
    ),
    Known(
        row="topics with the names of the cluster and of the broker are served",
        calls=("Query*: of the topic DefaultCluster", "Query*: of the topic broker-a"),
        paths=_ANSWER,
        sign="/ 'cannot access system topic'",
    ),
)

_SENDS = (
    Known(
        row="an unknown topic of a send, a receive or a recall is 40402",
        calls=("SendMessage: to the topic *", "ReceiveMessage: from the topic *", "Recall*: *"),
        paths=_STATUS,
        sign=_UNKNOWN_TOPIC,
    ),
    Known(
        row="a batch has an entry for each message",
        calls=("SendMessage: *",),
        paths=("answers.0.entries",),
        sign="'message_id': 'FD|'message_id': '[0-9A-F]{32}",
    ),
    Known(
        row="a message that the broker does not take is 40000",
        calls=("SendMessage: *",),
        paths=_STATUS,
        sign="(40000|43101) / 50001",
    ),
    Known(
        row="a transaction's id says where its half message is",
        calls=("SendMessage: *", "Telemetry: the check"),
        paths=(
            "answers.0.entries.0.transaction_id",
            "answers.0.recover_orphaned_transaction_command.transaction_id",
        ),
        sign="transaction_id: '[0-9A-F]+-[0-9A-F]+-broker-a' / '01AB'",
    ),
    Known(
        row="a delayed half message has no recall handle",
        calls=("SendMessage: TRANSACTION and DELAY *",),
        paths=("answers.0.entries.0.recall_handle",),
        sign="absent / 'RMQ_SYS_TRANS_HALF_TOPIC",
    ),
    Known(
        row="a message without a time of birth",
        calls=("ReceiveMessage: a message of *birth",),
        paths=("answers.1.message.system_properties.born_timestamp",),
        sign="'<now>' / (0|-5000)",
    ),
    Known(
        row="a user property without a name",
        calls=("SendMessage: *an empty name", "SendMessage: the property INNER_NUM"),
        paths=_ANSWER,
        sign="40007 / (20000|50001)",
    ),
)

_RECEIVES = (
    Known(
        row="a blank filter expression is refused",
        calls=("ReceiveMessage: *", "Telemetry: *expression blank"),
        paths=_STREAM,
        sign="subString split error|expression format is not correct|Expression can't be null",
    ),
    Known(
        row="a receive in order from a queue that is not there is refused",
        calls=("ReceiveMessage: in order from *",),
        paths=_STATUS,
        sign="'queueId.*is illegal.* / 'no new message'",
    ),
    Known(
        row="a receive that the broker refuses has the code of the broker",
        calls=("ReceiveMessage: of the group receive-off-group",),
        paths=_STATUS,
        sign="40300 / 50001",
    ),
    Known(
        row="a receipt handle that no broker wrote is refused",
        calls=("AckMessage: *", "Change*: *", "Forward*: *"),
        paths=_ANSWER,
        sign="no receipt handle: |a receipt for a topic of the form|name of another broker",
    ),
    Known(
        row="a receipt handle that no broker wrote is refused",
        calls=("*: of a handle of another broker",),
        paths=_ANSWER,
        sign="50001 / 20000",
    ),
    Known(
        row="a second change of the invisible time with the same receipt",
        calls=("ChangeInvisibleDuration: by the old handle",),
        paths=("answers.0.receipt_handle",),
    ),
    Known(
        row="a success of ForwardMessageToDeadLetterQueue has the text OK",
        calls=("ForwardMessageToDeadLetterQueue: *",),
        paths=("answers.0.status.message",),
        sign="'OK' / '0'",
    ),
    Known(
        row="the end of a transaction is answered as the broker answers it",
        calls=("EndTransaction: *",),
        paths=_STATUS,
        sign="cannot found transaction data|50001 / 20000",
    ),
)

_CLIENTS = (
    Known(
        row="a consumer of a group that is not there is served",
        calls=("Telemetry: a consumer of *",),
        paths=_STREAM,
        sign="group not found: ",
    ),
    Known(
        row="a consumer of a group that is not there is served",
        calls=(
            "*: of a consumer of 'client-new'",
            "*: of a consumer of '%RETRY%g'",
        ),
        paths=_STATUS,
        sign="20000 / 40015",
    ),
    Known(
        row="a subscription to a topic that cannot be received from is refused",
        calls=("Telemetry: consumer, *", "Telemetry: a consumer of a system topic"),
        paths=_STREAM,
        sign="The specified topic|cannot access system topic",
    ),
    Known(
        row="32 properties of a client",
        calls=("Telemetry: *",),
        paths=_STREAM,
        sign="client properties of .* are taken",
    ),
)

_PROTOCOL = (
    Known(
        row="SyncLiteSubscription is status 12",
        calls=("SyncLiteSubscription: *",),
        paths=_STREAM,
        sign="UNIMPLEMENTED",
    ),
    Known(
        row="a request that makes Java's code throw",
        calls=_ANY,
        paths=_STREAM,
        sign=r"\w+Exception\. \w|No enum constant|an unknown enum value",
    ),
    Known(
        row="a request that makes Java's code throw",
        calls=("Heartbeat: *language, later",),
        paths=_STATUS,
        sign="20000 / 40015",
    ),
    Known(
        row="a request that cannot be read has a text",
        calls=("*: bytes that are no *",),
        paths=("details",),
        sign="/ ''",
    ),
    Known(
        row="a header that begins or ends with a blank",
        calls=("*: a blank client id*", "*: a blank language*", "HTTP/2: *"),
        paths=(*_STREAM, *_HTTP),
        sign="RST_STREAM with error code 1|reset: '1' / ",
    ),
    Known(
        row="a call that Java's server resets has a status and a text",
        calls=("HTTP/2: *", "ReceiveMessage: within 0.001 s"),
        paths=(*_HTTP, "details"),
        sign="reset: absent / |Deadline Exceeded",
    ),
)

KNOWN: tuple[Known, ...] = (*_ROUTES, *_SENDS, *_RECEIVES, *_CLIENTS, *_PROTOCOL)
