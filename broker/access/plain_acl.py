"""PlainAclAccess: the access control 1.0 of one broker: its files, its check, its processors.

Imported only by a broker with aclEnable, or that migrates accounts: it needs PyYAML.

Java counterpart: initialAcl of broker/BrokerController.java of 4.9.7.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...auth.accounts import Accounts
from ...auth.gate import guarded
from ...auth.migration import migrate
from ...auth.need_tables import NEEDS_OF_BROKER
from ...auth.needs import Places
from ...auth.plain_access import PlainAccess
from ...auth.plain_acl_files import PlainAclFiles
from ...common.clock import Clock
from ...disk.os_disk import OsDisk
from ...remoting.channel import Processor
from ...remoting.signature import Credentials
from ..settings.broker_address import BrokerAddress
from ..settings.config import BrokerConfig
from .plain_acl_admin import PlainAclProcessor

logger = logging.getLogger(__name__)


class PlainAclAccess:
    """The accounts of one broker, and the check of its requests by them.

    Args:
      config: the broker's, with aclConfigPath.
      places: see `Places`.
      clock: for the files' versions.

    Attributes:
      files: the accounts; `load` must be called before requests are served.
      may_publish, may_send, revoked: see `PlainAccess`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        address: BrokerAddress,
        places: Places,
        *,
        clock: Clock,
    ) -> None:
        self.files = _files(config.acl_config_path, clock)
        self._access = PlainAccess(lambda: self.files.acl, NEEDS_OF_BROKER, places)
        self.may_publish = self._access.may_publish
        self.may_send = self._access.may_send
        self.revoked = self._access.revoked
        self._processor = PlainAclProcessor(
            config, address, self.files, self._access.is_administrator
        )

    @property
    def super_account(self) -> Credentials | None:
        """An administrator without listed permissions, who may do everything; None: no such one."""
        accounts = self.files.acl.accounts.values()
        found = next((account for account in accounts if account.may_everything), None)
        return None if found is None else Credentials(found.access_key, found.secret_key)

    def guard(self, processors: Mapping[int, Processor]) -> dict[int, Processor]:
        """The broker's table with 50 to 54; each processor serves only what the check lets pass."""
        own = {int(code): process for code, process in self._processor.processors.items()}
        return guarded({**processors, **own}, self._access.check)


def migrate_files(folder: str, accounts: Accounts, clock: Clock) -> None:
    """Create users of 2.0 for the accounts of plain_acl.yml; see `migrate`. The log says what.

    Raises: ConfigError: a file cannot be used; no user is created then.
    """
    files = _files(folder, clock)
    files.load()
    report = migrate(files.acl, accounts)
    logger.info(
        "migrated accounts from %(folder)s: %(created)s new users, %(existing)s were there and "
        "stay as they were; set migrateAuthFromV1Enabled=false when all have moved",
        {
            "folder": files.folder,
            "created": len(report.created),
            "existing": len(report.existing),
        },
    )
    for remark in report.remarks:
        logger.warning("migrated account: %(remark)s", {"remark": remark})
    for name, reason in report.refused.items():
        logger.error(
            "the account %(name)s is not migrated, so its clients are refused: %(reason)s",
            {"name": name, "reason": reason},
        )


def _files(folder: str, clock: Clock) -> PlainAclFiles:
    # The folder is no part of the store, so it is on the system's disk, whatever the store's is.
    return PlainAclFiles(folder, clock=clock, disk=OsDisk())
