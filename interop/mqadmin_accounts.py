"""mqadmin with accounts: the keys in conf/tools.yml, and the commands for users and access lists.

Each command is run with Apache's brokers and with ours, and must print what the table says.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from .accounts import (
    SUPER,
    Account,
    Accounts,
    Generation,
    generations_of,
    open_with_accounts,
    start_with_accounts,
)
from .jobs import Job, OnCell, failed
from .mqadmin import AdminJvm
from .peers import check_peer
from .process import PeerError
from .report.cells import Cell, Kind, Verdict
from .wire import Keys

WEAK: Final = Account(Keys("interop-weak", "the-secret-of-weak"))
TOPIC: Final = "accounts_topic"
GROUP: Final = "accounts_group"
VERSIONS: Final[Mapping[Generation, tuple[str, ...]]] = MappingProxyType(
    {Generation.ACL_1: ("4.9.7",), Generation.ACL_2: ("5.5.0",)}
)
"""The mqadmin that has the commands of each generation."""

CLUSTER: Final = "DefaultCluster"


@dataclass(frozen=True, slots=True)
class AccountCommand:
    """One call of a command.

    Attributes:
      feature: its name in reports.
      line: its arguments; `{broker}` stands for the broker's address.
      prints: a pattern that its output must contain.
      keys: of its conf/tools.yml; None if there is none.
    """

    feature: str
    line: str
    prints: str
    keys: Keys | None = SUPER.keys


def _refused(line: str, text: str, *, keys: Keys | None) -> AccountCommand:
    who = "without an account" if keys is None else "without the right"
    return AccountCommand(f"{line.split()[0]} {who}", line, text, keys)


_UPDATE_TOPIC = f"updateTopic -b {{broker}} -t {TOPIC} -r 2 -w 2"
_NO_RIGHT = "User:interop-weak has no permission to access {}:{} from 127.0.0.1, no matched"
_NEEDS_ADMIN = "Need admin permission for request code={}, but accessKey=interop-weak is not"
_CREATE_USER = "createUser -b {broker} -u mq-user -p mq-secret-1 -t Normal"
_CREATE_ACL = f"createAcl -b {{broker}} -s User:mq-user -r Topic:{TOPIC} -a Pub -d Allow"
_ACCOUNT_1 = f"-a mq-account -s mq-secret-1 -m false -i DENY -u SUB -t {TOPIC}=PUB"
_UPDATE_ACL_1 = f"updateAclConfig -b {{broker}} {_ACCOUNT_1}"

_COMMON: Final = (
    AccountCommand("updateTopic", _UPDATE_TOPIC, "create topic to {broker} success"),
    AccountCommand("updateSubGroup", f"updateSubGroup -b {{broker}} -g {GROUP}", "success"),
    AccountCommand("brokerStatus", "brokerStatus -b {broker}", "brokerVersionDesc"),
    AccountCommand("topicStatus", f"topicStatus -t {TOPIC}", "broker-a"),
    AccountCommand("getBrokerConfig", "getBrokerConfig -b {broker}", "brokerName"),
)

COMMANDS: Final[Mapping[Generation, tuple[AccountCommand, ...]]] = MappingProxyType(
    {
        Generation.ACL_1: (
            *_COMMON,
            _refused(_UPDATE_TOPIC, "No accessKey is configured", keys=None),
            _refused(_UPDATE_TOPIC, _NEEDS_ADMIN.format(17), keys=WEAK.keys),
            AccountCommand("updateAclConfig", _UPDATE_ACL_1, "success"),
            AccountCommand("getAclConfig", "getAclConfig -b {broker}", "mq-account"),
            AccountCommand(
                "clusterAclConfigVersion", f"clusterAclConfigVersion -c {CLUSTER}", "broker-a"
            ),
            AccountCommand(
                "updateGlobalWhiteAddr",
                "updateGlobalWhiteAddr -b {broker} -g 192.0.2.*",
                "success",
            ),
            AccountCommand(
                "deleteAclConfig", "deleteAclConfig -b {broker} -a mq-account", "success"
            ),
            AccountCommand("deleteTopic", f"deleteTopic -c {CLUSTER} -t {TOPIC}", "success"),
        ),
        Generation.ACL_2: (
            *_COMMON,
            _refused(_UPDATE_TOPIC, "username cannot be null", keys=None),
            _refused(_UPDATE_TOPIC, _NO_RIGHT.format("Topic", TOPIC), keys=WEAK.keys),
            AccountCommand("createUser", _CREATE_USER, "success"),
            _refused(_CREATE_USER, _NO_RIGHT.format("Cluster", CLUSTER), keys=WEAK.keys),
            AccountCommand("getUser", "getUser -b {broker} -u mq-user", "mq-user"),
            AccountCommand("listUser", "listUser -b {broker} -f mq-", "mq-user"),
            AccountCommand("updateUser", "updateUser -b {broker} -u mq-user -p other-1", "success"),
            AccountCommand("createAcl", _CREATE_ACL, "success"),
            AccountCommand("getAcl", "getAcl -b {broker} -s User:mq-user", f"Topic:{TOPIC}"),
            AccountCommand("listAcl", "listAcl -b {broker} -s mq-user", f"Topic:{TOPIC}"),
            AccountCommand(
                "updateAcl", _CREATE_ACL.replace("createAcl", "updateAcl") + " -i 192.0.2.1",
                "success",
            ),
            AccountCommand(
                "copyUser", "copyUser -f {broker} -t {broker} -u mq-user", "copy user.*mq-user"
            ),
            AccountCommand(
                "copyAcl", "copyAcl -f {broker} -t {broker} -s User:mq-user", "copy acl.*mq-user"
            ),
            AccountCommand("deleteAcl", "deleteAcl -b {broker} -s User:mq-user", "success"),
            AccountCommand("deleteUser", "deleteUser -b {broker} -u mq-user", "success"),
            AccountCommand("deleteTopic", f"deleteTopic -c {CLUSTER} -t {TOPIC}", "success"),
        ),
    }
)  # fmt: skip


def jobs(brokers: Sequence[str]) -> list[Job]:
    """A job for each broker and generation; its cells are the commands.

    Raises: PeerError: a broker is unknown.
    """
    return [
        _job(broker, generation, version)
        for broker in brokers
        for generation in generations_of(broker)
        for version in VERSIONS[generation]
    ]


def _job(broker: str, generation: Generation, version: str) -> Job:
    by_feature = {
        f"mqadmin {command.feature} with {generation}": command for command in COMMANDS[generation]
    }
    owed = tuple(
        Cell(Kind.ACCOUNTS, feature, f"mqadmin-{version}", broker, Verdict.SKIPPED)
        for feature in by_feature
    )

    def play(wanted: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
        # All commands are run: the later ones need what the earlier ones made.
        cells = {cell.feature: cell for cell in wanted}
        reason = check_peer(broker)
        if reason is not None:
            for cell in wanted:
                on_cell(replace(cell, detail=reason))
            return
        accounts = Accounts(generation, (WEAK,))
        keys = {"brokerName": "broker-a", "brokerClusterName": CLUSTER}
        cluster = open_with_accounts(broker, folder / "cluster", accounts, keys)
        admin: AdminJvm | None = None
        try:
            start_with_accounts(cluster, accounts)
            tools = folder / "tools"
            for feature, command in by_feature.items():
                write_keys(tools, command.keys)
                began_s = time.monotonic()
                if admin is None:
                    admin = AdminJvm(version, tools)
                words = command.line.replace("{broker}", cluster.broker_address).split()
                text, is_whole = admin.play([*words, "-n", cluster.namesrv_address])
                if admin.has_ended or not is_whole:
                    admin.close()
                    admin = None
                if feature in cells:
                    pattern = command.prints.replace("{broker}", cluster.broker_address)
                    cell = _verdict(cells.pop(feature), pattern, text, " ".join(words))
                    on_cell(replace(cell, seconds=time.monotonic() - began_s))
        except PeerError as error:
            for cell in failed(list(cells.values()), str(error)):
                on_cell(cell)
        finally:
            if admin is not None:
                admin.close()
            cluster.close()

    return Job(f"mqadmin {version} on {broker}, {generation}", owed, play)


def write_keys(folder: Path, keys: Keys | None) -> None:
    """Write, or remove, the conf/tools.yml of an `AdminJvm` in this folder."""
    path = folder / "home" / "conf" / "tools.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if keys is not None:
        path.write_text(f"accessKey: {keys.access_key}\nsecretKey: {keys.secret_key}\n")


def _verdict(cell: Cell, pattern: str, text: str, line: str) -> Cell:
    if re.search(pattern, text, re.DOTALL):
        return replace(cell, verdict=Verdict.PASSED)
    detail = f"the output has no {pattern!r}\n$ mqadmin {line}\n{text[-2000:]}"
    return replace(cell, verdict=Verdict.FAILED, detail=detail)
