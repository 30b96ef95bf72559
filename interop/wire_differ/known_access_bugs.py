"""Known differences with access control, by its generation (see `known_bugs`).

Apache's brokers leave many request codes open to every account; ours needs a right for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from ..accounts import Generation
from .known_bugs import KnownBug

_ANSWER: Final = ("remark", "fields", "body")
_OPEN_2: Final = (
    *(18, 25, 26, 28, 43, 45, 46, 60, 61, 200, 225, 306, 316, 329, 400, 401, 402, 907),
    *(200056, 200151),
)
_OPEN_1: Final = (
    *(14, 21, 25, 26, 28, 29, 30, 31, 32, 33, 37, 41, 42, 43, 45, 46, 50, 51, 52, 53, 54),
    *(201, 202, 203, 204, 208, 222, 223, 300, 303, 305, 306, 307, 308, 309, 314, 315, 316, 317),
    *(321, 323, 328, 329),
)
_BUILDER: Final = "auth/…/DefaultAuthorizationContextBuilder.java"
_VALIDATOR: Final = "acl/plain/PlainAccessValidator.java"


def _requests(codes: Iterable[int]) -> tuple[str, ...]:
    return tuple(f"{code}: *" for code in codes)


_ACL_2: Final = (
    KnownBug(
        requests=_requests(_OPEN_2),
        paths=_ANSWER,
        codes=((16, 0),),
        row="Cluster Update: 25, 301, 306, 316, 318, 329",
        source=_BUILDER,
    ),
    KnownBug(
        requests=_requests((21, 201, 305)),
        paths=_ANSWER,
        codes=((16, 0),),
        row="lists of all topics (21, 206, 224, 304, 305, 311 to 313)",
        source=_BUILDER,
    ),
    KnownBug(
        requests=("361: *",),
        paths=_ANSWER,
        codes=((16, 21),),
        row="361 needs what a pull (11) needs",
        source=_BUILDER,
    ),
    KnownBug(
        requests=("105: *",),
        paths=_ANSWER,
        codes=((3, 16),),
        row="a code that no server serves is answered with code 3 to everyone",
        source="broker/auth/pipeline/AuthenticationPipeline.java",
    ),
    KnownBug(
        requests=("325: to another topic*",),
        paths=_ANSWER,
        codes=((16, 1),),
        row="Cluster Update: 25, 301, 306, 316, 318, 329",
        source=_BUILDER,
    ),
)

_ACL_1: Final = (
    KnownBug(
        requests=("50: a short name*", "50: no name*"),
        paths=("remark",),
        row="`updateAclConfig` and `updateGlobalWhiteAddr` are checked completely",
        source="acl/plain/PlainPermissionManager.java checkPlainAccessConfig",
    ),
    KnownBug(
        requests=_requests(_OPEN_1),
        paths=_ANSWER,
        codes=((1, 0), (1, 206)),
        row="every request code needs something",
        source=_VALIDATOR,
    ),
    KnownBug(
        requests=("320: *",),
        paths=_ANSWER,
        codes=((1, 0),),
        row="a batch (320) needs PUB on its topic",
        source=_VALIDATOR,
    ),
    KnownBug(
        requests=("325: to another topic*",),
        paths=_ANSWER,
        row="every request code needs something",
        source=_VALIDATOR,
    ),
    KnownBug(
        requests=("310: to a retry topic*",),
        paths=_ANSWER,
        codes=((0, 1),),
        row="a send (310) to a retry topic needs SUB on the group of that topic",
        source=_VALIDATOR,
    ),
    KnownBug(
        requests=("34: *", "15: *", "11: *"),
        paths=("remark",),
        row="of several missing rights the first in the order of the request is named",
        source="acl/plain/PlainPermissionManager.java checkPerm",
    ),
)

KNOWN_ACCESS_BUGS: Final[Mapping[Generation, tuple[KnownBug, ...]]] = MappingProxyType(
    {Generation.ACL_1: _ACL_1, Generation.ACL_2: _ACL_2}
)
