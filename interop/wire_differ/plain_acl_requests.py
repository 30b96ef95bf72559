"""A script for the requests about accounts of ACL 1.0, well and wrongly formed.

The super user signs them.
"""

from __future__ import annotations

from functools import partial

from ...remoting.codec import SerializeType
from ...remoting.request_codes import RequestCode as Code
from ..accounts import SUPER, Generation
from .builders import Names
from .normalise import Normaliser, Side, Tree
from .request import BodyKind, Request, Script, Signer

_UPDATE, _DELETE = Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG
_VERSION, _SHOW = Code.GET_BROKER_CLUSTER_ACL_INFO, Code.GET_BROKER_CLUSTER_ACL_CONFIG
_WHITE = Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG


def _version_text() -> Normaliser:
    """The files' paths and times differ; there is a version, and of one file."""

    def change(value: Tree, _: Side) -> Tree:
        return "<a version>" if isinstance(value, str) and "counter" in value else value

    return Normaliser("version_text", ("fields.version", "fields.allAclFileVersion"), change)


def plain_acl(header: SerializeType) -> Script:
    """Accounts made, changed, shown and removed; then what is refused."""
    names = Names("plain-acl", header)
    key, other = names("account-1"), names("account-2")
    ask = partial(Request, signer=Signer(SUPER.keys))
    bad = partial(ask, erroneous=True)
    new = {"accessKey": key, "secretKey": "secret-of-it", "admin": False}
    shown = partial(ask, code=_SHOW, body_kind=BodyKind.JSON)
    steps = (
        ask("an account", _UPDATE, {**new, "topicPerms": "a=PUB,b=SUB", "groupPerms": "g=PUB|SUB",
            "defaultTopicPerm": "DENY", "defaultGroupPerm": "SUB"}),
        ask("without permissions", _UPDATE, {**new, "accessKey": other}),
        ask("changed", _UPDATE, {**new, "secretKey": "another-one", "admin": True,
            "whiteRemoteAddress": "192.0.2.1"}),
        ask("addresses", _WHITE, {"globalWhiteAddrs": "192.0.2.*,198.51.100.1"}),
        shown("after changes"),
        ask("after changes", _VERSION, normalisers=(_version_text(),)),
        ask("the account", _DELETE, {"accessKey": other}),
        bad("again", _DELETE, {"accessKey": other}, expect=210),
        bad("no name", _DELETE, expect=210),
        bad("a short name", _UPDATE, {**new, "accessKey": "short"}, expect=209),
        bad("no secret", _UPDATE, {"accessKey": key, "admin": False}, expect=209),
        bad("no name", _UPDATE, {"secretKey": "secret-of-it", "admin": False}, expect=209),
        bad("a topic without a permission", _UPDATE, {**new, "topicPerms": "a"}, expect=209),
        bad("an unknown permission", _UPDATE, {**new, "groupPerms": "g=WHAT"}, expect=209),
        bad("no addresses", _WHITE, expect=211),
        bad("another file", _WHITE, {"globalWhiteAddrs": "192.0.2.*",
            "aclFileFullPath": "/etc/hostname"}, expect=211),
        shown("after refusals"),
        ask("the last account", _DELETE, {"accessKey": key}),
        shown("at the end"),
    )  # fmt: skip
    return Script("accounts of 1.0", header, steps, area=Generation.ACL_1)
