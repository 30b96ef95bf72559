"""PlainAcl: the accounts of ACL 1.0, from plain_acl.yml and the files of conf/acl.

    globalWhiteRemoteAddresses: [10.0.0.*]    # requests from here need no account at all
    accounts:
      - accessKey: RocketMQ                   # more than 6 characters
        secretKey: 12345678                   # the same; numbers are read as they are written
        whiteRemoteAddress: 192.168.1.*       # requests of this account need no signature from here
        admin: false
        defaultTopicPerm: DENY                # DENY, PUB, SUB, PUB|SUB; what is missing is DENY
        defaultGroupPerm: SUB
        topicPerms: [topicA=DENY, topicB=PUB|SUB]
        groupPerms: [groupA=DENY, groupB=SUB]
    dataVersion: [{counter: 1, timestamp: 1700000000000}]    # written by requests

Pure: strings of files come in, tables and strings of files go out.

Java counterpart: acl/plain/PlainPermissionManager.java, acl/common/{AclUtils,Permission}.java of
4.9.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, Final

import msgspec
import yaml

from ..common.config import ConfigError
from ..common.topic_names import RETRY_TOPIC_PREFIX
from ..remoting import fastjson
from ..remoting.bodies import PlainAccessConfig, PlainAclVersion
from .remote_address import RemoteAddressError, RemoteAddresses

FILE_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of one file; 10,000 accounts of eight lines have 2 MB, which takes a second to read."""

KEY_LENGTH_MIN: Final = 7
"""Characters of an access key and of a secret key. Source: AclConstants.ACCESS_KEY_MIN_LENGTH."""

HIDDEN: Final = "(hidden)"
"""Stands for a secret in messages and answers."""

ACCOUNTS: Final = "accounts"
WHITE_ADDRESSES: Final = "globalWhiteRemoteAddresses"
DATA_VERSION: Final = "dataVersion"
_MEMBERS: Final = (WHITE_ADDRESSES, ACCOUNTS, DATA_VERSION)
_ACCOUNT_MEMBERS: Final = PlainAccessConfig.__struct_encode_fields__
_REASON_CHARS_MAX: Final = 200
_BOOL: Final = "tag:yaml.org,2002:bool"
_NULL: Final = "tag:yaml.org,2002:null"
_TEXT: Final = "tag:yaml.org,2002:str"
_UNTYPED: Final = frozenset({_BOOL, _NULL})


class Perm(IntFlag):
    """What an account may do with a topic or group. Source: RocketMQ Permission."""

    DENY = 1
    PUB = 4
    SUB = 8


PERMS: Final = {
    "DENY": Perm.DENY,
    "PUB": Perm.PUB,
    "SUB": Perm.SUB,
    "PUB|SUB": Perm.PUB | Perm.SUB,
    "SUB|PUB": Perm.PUB | Perm.SUB,
}
"""The permissions as files have them; any other text is DENY, as in RocketMQ."""


class PlainAclError(ValueError):
    """An account or a list of addresses that a request may not set; `str()` is RocketMQ's text."""


@dataclass(frozen=True, slots=True)
class PlainAccount:
    """An account, ready for checks. RocketMQ: PlainAccessResource.

    Attributes:
      secret_key: the key of its signatures.
      white_addresses: from these it needs neither a signature nor a permission.
      is_admin: whether it may administer the broker.
      default_topic_perm, default_group_perm: for what `perms` does not have.
      perms: by topic, or by `%RETRY%` and the group.
    """

    access_key: str
    secret_key: str = field(repr=False)
    white_addresses: RemoteAddresses
    is_admin: bool
    default_topic_perm: Perm
    default_group_perm: Perm
    perms: Mapping[str, Perm]

    @property
    def may_everything(self) -> bool:
        """An administrator without any listed permission. One with some is held to them."""
        return self.is_admin and not self.perms

    def allows(self, resource: str, needed: Perm) -> bool:
        """Whether it may use a topic or group.

        Args:
          resource: a topic, or `%RETRY%` and a group.
          needed: PUB or SUB; both: one of them is enough.
        """
        is_group = resource.startswith(RETRY_TOPIC_PREFIX)
        default = self.default_group_perm if is_group else self.default_topic_perm
        return bool(self.perms.get(resource, default) & needed)


@dataclass(frozen=True, slots=True)
class PlainAclFile:
    """One file.

    Attributes:
      accounts: its accounts, in its order, each once.
      configs: the same as the file spells them.
      white_addresses: its globalWhiteRemoteAddresses.
      version: its dataVersion.
      warnings: a line for each part that has no effect.
    """

    path: str
    accounts: tuple[PlainAccount, ...] = ()
    configs: tuple[PlainAccessConfig, ...] = ()
    white_addresses: tuple[RemoteAddresses, ...] = ()
    version: PlainAclVersion = field(default_factory=PlainAclVersion)
    warnings: tuple[str, ...] = ()


class PlainAcl:
    """The accounts of all files; where two files have an account, the first one's counts.

    Args:
      files: in their order.

    Attributes:
      accounts: account by access key.
      file_of: path of its file by access key.
      white_addresses: requests from these are accepted without an account.
      warnings: those of the files, and a line for each account that is there twice.
    """

    def __init__(self, files: Iterable[PlainAclFile] = ()) -> None:
        self.files = tuple(files)
        self.accounts: dict[str, PlainAccount] = {}
        self.file_of: dict[str, str] = {}
        self.warnings = [warning for file in self.files for warning in file.warnings]
        for file in self.files:
            for account in file.accounts:
                first = self.file_of.setdefault(account.access_key, file.path)
                if first == file.path:
                    self.accounts[account.access_key] = account
                else:
                    self.warnings.append(
                        f"{file.path}: the account {account.access_key} is also in {first}, which "
                        "counts: remove one of them"
                    )
        self.white_addresses = tuple(
            address for file in self.files for address in file.white_addresses
        )

    @property
    def configs(self) -> list[PlainAccessConfig]:
        """The accounts that count, as their files spell them."""
        return [
            config
            for file in self.files
            for config in file.configs
            if self.file_of.get(config.access_key or "") == file.path
        ]


def account_of(config: PlainAccessConfig) -> PlainAccount:
    """Prepare an account for checks. Text that is no permission means DENY.

    Raises: PlainAclError: a key is too short, an entry is not `name=permission`, or an address is
      none.
    """
    access_key, secret_key = config.access_key or "", config.secret_key or ""
    if min(len(access_key), len(secret_key)) < KEY_LENGTH_MIN:
        shown = "null" if config.secret_key is None else HIDDEN
        raise PlainAclError(
            f"The accessKey={_shown(config.access_key)} and secretKey={shown} cannot be null and "
            "length should longer than 6"
        )
    perms = {RETRY_TOPIC_PREFIX + name: perm for name, perm in _perms("group", config.group_perms)}
    perms.update(_perms("topic", config.topic_perms))
    try:
        white_addresses = RemoteAddresses(config.white_remote_address or "")
    except RemoteAddressError as error:
        raise PlainAclError(str(error)) from error
    return PlainAccount(
        access_key,
        secret_key,
        white_addresses,
        config.admin,
        perm_of(config.default_topic_perm),
        perm_of(config.default_group_perm),
        perms,
    )


def perm_of(text: str | None) -> Perm:
    """The permission with this name; None and any other text: DENY."""
    return PERMS.get((text or "").strip(), Perm.DENY)


def split_perm(entry: str) -> tuple[str, str] | None:
    """The name and the permission of `name=permission`; None: it is not of that form."""
    parts = [part for part in entry.split("=") if part]
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else None


def _perms(kind: str, entries: Sequence[str] | None) -> Iterator[tuple[str, Perm]]:
    for entry in entries or ():
        pair = split_perm(entry)
        if pair is None:
            raise PlainAclError(f"Parse resource permission failed for {kind}:{entry}")
        yield pair[0], perm_of(pair[1])


def _shown(text: str | None) -> str:
    """A value in a string, as Java has it."""
    return "null" if text is None else text


# Files


def read_file(text: bytes, path: str) -> PlainAclFile:
    """Read a file of accounts. An empty one has no accounts.

    Args:
      path: for messages and `PlainAclFile.path`.
    Raises: ConfigError: it is too large, no YAML, or a part of it cannot be used; the message says
      where, why, and what to do, and never shows a secret.
    """
    node = _compose(text, path)
    if node is None:
        return PlainAclFile(path)
    tree = _construct(node, path)
    if not isinstance(tree, dict):
        raise ConfigError(
            f"it is a {_kind(tree)} and should have the members {', '.join(_MEMBERS)}", path=path
        )
    warnings = [
        f"{path}: {name!r} has no effect; members are {', '.join(_MEMBERS)}"
        for name in tree
        if name not in _MEMBERS
    ]
    configs: dict[str, PlainAccessConfig] = {}
    accounts: list[PlainAccount] = []
    lines = _account_lines(node)
    for index, raw in enumerate(_list_of(tree, ACCOUNTS, path)):
        place = _Place(path, lines[index] if index < len(lines) else 0, index + 1)
        config = place.config_of(raw)
        warnings += place.warnings_of(raw, config)
        try:
            account = account_of(config)
        except PlainAclError as error:
            raise place.error(f"{error}. {_ADVICE}", config.access_key) from error
        if account.access_key in configs:
            warnings.append(place.warning("is here twice; the first one counts", config.access_key))
            continue
        configs[account.access_key] = config
        accounts.append(account)
    return PlainAclFile(
        path,
        tuple(accounts),
        tuple(configs.values()),
        tuple(_white_addresses(tree, path)),
        _version(tree, path),
        tuple(warnings),
    )


_ADVICE: Final = (
    "Keys have 7 characters or more, permissions look like topicA=PUB|SUB, addresses like 10.0.0.1,"
    " 10.0.0.{1,2}, 10.0.0.1-9 or 10.0.0.*"
)


@dataclass(frozen=True)
class _Place:
    """Where an account is in its file, for messages."""

    path: str
    line: int
    number: int

    def error(self, reason: str, access_key: str | None) -> ConfigError:
        return ConfigError(f"{self._named(access_key)}: {reason}", path=self.path, line=self.line)

    def warning(self, reason: str, access_key: str | None) -> str:
        return f"{self.path}:{self.line}: {self._named(access_key)} {reason}"

    def config_of(self, raw: object) -> PlainAccessConfig:
        if not isinstance(raw, dict):
            raise self.error(f"it is a {_kind(raw)}, and should begin with accessKey:", None)
        try:
            return msgspec.convert(fastjson.without_nulls(raw), PlainAccessConfig, strict=False)
        except msgspec.ValidationError as error:
            name = raw.get("accessKey")
            reason = f"{str(error)[:_REASON_CHARS_MAX]}: correct the type"
            raise self.error(reason, name if isinstance(name, str) else None) from error
        except RecursionError as error:
            raise self.error("it contains itself, or is nested too deeply", None) from error

    def warnings_of(self, raw: Mapping[object, object], config: PlainAccessConfig) -> Iterator[str]:
        for name in raw:
            if name not in _ACCOUNT_MEMBERS:
                members = ", ".join(_ACCOUNT_MEMBERS)
                reason = f"has {name!r}, which has no effect; members are {members}"
                yield self.warning(reason, config.access_key)
        perms = [
            pair[1]
            for entry in (*(config.topic_perms or ()), *(config.group_perms or ()))
            if (pair := split_perm(entry))
        ]
        for perm in (config.default_topic_perm, config.default_group_perm, *perms):
            if perm is not None and perm.strip() not in PERMS:
                reason = f"has the permission {perm!r}, which counts as DENY; permissions are "
                yield self.warning(reason + ", ".join(PERMS), config.access_key)

    def _named(self, access_key: str | None) -> str:
        return f"account {access_key or self.number}"


def _white_addresses(tree: Mapping[str, object], path: str) -> Iterator[RemoteAddresses]:
    for text in _list_of(tree, WHITE_ADDRESSES, path):
        if text is None:
            continue
        try:
            yield RemoteAddresses(str(text))
        except RemoteAddressError as error:
            raise ConfigError(f"{WHITE_ADDRESSES}: {error}. {_ADVICE}", path=path) from error


def _version(tree: Mapping[str, object], path: str) -> PlainAclVersion:
    versions = _list_of(tree, DATA_VERSION, path)
    if not versions:
        return PlainAclVersion()
    try:
        return msgspec.convert(versions[0], PlainAclVersion, strict=False)
    except msgspec.ValidationError as error:
        reason = f"{DATA_VERSION}: {str(error)[:_REASON_CHARS_MAX]}: remove this member"
        raise ConfigError(reason, path=path) from error


def _list_of(tree: Mapping[str, object], name: str, path: str) -> list[Any]:
    value = tree.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        reason = f"{name} is a {_kind(value)}, and should be a list: put '- ' before each item"
        raise ConfigError(reason, path=path)
    return value


def _kind(value: object) -> str:
    return {dict: "mapping", list: "list", type(None): "blank"}.get(type(value), "text")


# Changes


def with_account(text: bytes, path: str, config: PlainAccessConfig, now_ms: int) -> bytes:
    """The text of a file after UPDATE_AND_CREATE_ACL_CONFIG (50).

    Values of `config` that are None stay as they are in the file. Comments are lost, because the
    file is written anew.

    Args:
      text: of the file now; b"" if there is none.
      now_ms: the wall clock, for dataVersion.
    Raises:
      PlainAclError: a value cannot be used.
      ConfigError: the file cannot be read.
    """
    _check_change(config)
    tree = _tree_to_change(text, path)
    accounts = _list_of(tree, ACCOUNTS, path)
    old = _take_account(accounts, config.access_key)
    new: dict[str, object] = dict(old or {})
    for name, attribute in zip(
        PlainAccessConfig.__struct_encode_fields__, PlainAccessConfig.__struct_fields__, strict=True
    ):
        value = getattr(config, attribute)
        if value is not None and not (value == "" and name in _NOT_EMPTY):
            new[name] = value
    accounts.append(new)
    tree[ACCOUNTS] = accounts
    return _dump(tree, path, now_ms)


def without_account(text: bytes, path: str, access_key: str, now_ms: int) -> bytes | None:
    """The text of a file after DELETE_ACL_CONFIG (51); None: it does not have the account.

    Raises: ConfigError: the file cannot be read.
    """
    tree = _tree_to_change(text, path)
    accounts = _list_of(tree, ACCOUNTS, path)
    if _take_account(accounts, access_key) is None:
        return None
    tree[ACCOUNTS] = accounts
    return _dump(tree, path, now_ms)


def with_white_addresses(text: bytes, path: str, addresses: Sequence[str], now_ms: int) -> bytes:
    """The text of a file after UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53).

    Raises:
      PlainAclError: an address is invalid.
      ConfigError: the file cannot be read.
    """
    for address in addresses:
        try:
            RemoteAddresses(address)
        except RemoteAddressError as error:
            raise PlainAclError(str(error)) from error
    tree = _tree_to_change(text, path)
    tree[WHITE_ADDRESSES] = list(addresses)
    return _dump(tree, path, now_ms)


_NOT_EMPTY: Final = ("secretKey", "defaultTopicPerm", "defaultGroupPerm")
"""Members that an empty string does not change. Source: createAclAccessConfigMap."""


def _check_change(config: PlainAccessConfig) -> None:
    """Raises: PlainAclError: with the messages of Permission.checkResourcePerms."""
    account_of(msgspec.structs.replace(config, topic_perms=None, group_perms=None))
    for entry in (*(config.topic_perms or ()), *(config.group_perms or ())):
        pair = split_perm(entry)
        if pair is None:
            raise PlainAclError(
                f"Parse Resource format error for {entry}.\nThe expected resource format is "
                "'Res=Perm'. For example: topicA=SUB"
            )
        _check_perm(entry, pair[1])
    for name, perm in (
        ("defaultTopicPerm", config.default_topic_perm),
        ("defaultGroupPerm", config.default_group_perm),
    ):
        if perm:
            _check_perm(f"{name}={perm}", perm)


def _check_perm(entry: str, perm: str) -> None:
    if perm.strip() not in PERMS:
        raise PlainAclError(
            f"Parse resource permission error for {entry}.\nThe expected permissions are 'SUB' or "
            "'PUB' or 'SUB|PUB' or 'PUB|SUB'."
        )


def _tree_to_change(text: bytes, path: str) -> dict[str, Any]:
    read_file(text, path)  # nothing is added to a file that could not be read afterwards
    node = _compose(text, path)
    tree = None if node is None else _construct(node, path)
    return tree if isinstance(tree, dict) else {}


def _take_account(accounts: list[Any], access_key: str | None) -> dict[str, object] | None:
    for index, account in enumerate(accounts):
        if account.get("accessKey") == access_key:
            found: dict[str, object] = accounts.pop(index)
            return found
    return None


def _dump(tree: dict[str, Any], path: str, now_ms: int) -> bytes:
    version = _version(tree, path)
    tree[DATA_VERSION] = [{"counter": version.counter + 1, "timestamp": now_ms}]
    text: str = yaml.dump(
        tree,
        Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1_000_000,
    )
    return text.encode()


# YAML


_Base: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where it is there: 10,000 accounts take 1 s of CPU instead of 4."""


class _Loader(_Base):  # type: ignore[misc]
    """Reads strings as they are written, so that a secret of 01234567 is no octal number."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, Any]]] = {  # noqa: RUF012 - PyYAML's
        first: [pair for pair in pairs if pair[0] in _UNTYPED]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_scalar(self, node: yaml.ScalarNode) -> str:
        """A string. A tag such as `!!int` has no meaning here, and its errors quote secrets."""
        is_bool = node.tag == _BOOL and node.value.lower() in self.bool_values
        if node.tag not in (_TEXT, _NULL) and not is_bool:
            raise yaml.constructor.ConstructorError(None, None, "a tag", node.start_mark)
        return str(super().construct_scalar(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, each of whose keys is a string and there once."""
        names: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in names:
                raise yaml.constructor.ConstructorError(
                    None, None, "a key that is twice or no string", key.start_mark
                )
            names.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _compose(text: bytes, path: str) -> yaml.Node | None:
    if len(text) > FILE_SIZE_MAX:
        raise ConfigError(
            f"{len(text)} bytes; the limit is {FILE_SIZE_MAX}: divide it into files of conf/acl",
            path=path,
        )
    with _readable(path):
        loader = _Loader(text.decode())
        try:
            node: yaml.Node | None = loader.get_single_node()
            return node
        finally:
            loader.dispose()


def _construct(node: yaml.Node, path: str) -> object:
    with _readable(path):
        loader = _Loader("")
        try:
            return loader.construct_document(node)
        finally:
            loader.dispose()


def _account_lines(root: yaml.Node) -> list[int]:
    """The line of each account, 1-based."""
    for key, value in root.value:
        if key.value == ACCOUNTS and isinstance(value, yaml.SequenceNode):
            return [item.start_mark.line + 1 for item in value.value]
    return []


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn what PyYAML raises into a ConfigError that quotes nothing of the file."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem
        if isinstance(error, (yaml.composer.ComposerError, yaml.constructor.ConstructorError)):
            # PyYAML's text quotes the alias or the tag, which may be the beginning of a secret.
            problem = "a key occurs twice, or a string that starts with *, & or ! must be quoted"
        line = mark.line + 1 if mark else 0
        raise ConfigError(f"it is not YAML: {problem}", path=path, line=line) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError("it is not YAML: not valid UTF-8", path=path) from error
    except RecursionError as error:
        raise ConfigError("it is nested too deeply to be a list of accounts", path=path) from error
