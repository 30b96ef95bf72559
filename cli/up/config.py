"""The configurations of `trocket up`, from its flags and files."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...broker.settings.config import BrokerConfig, with_machine
from ...broker.settings.config_checks import read_broker_config
from ...common.config import ConfigError, Entry, Problems
from ...common.metrics_keys import MetricsExporterType
from ...common.process import read_entries
from ...namesrv.config import NamesrvConfig, read_namesrv_config
from ...remoting.tls_config import TlsConfig, TlsMode, split_tls, with_changes
from ...remoting.tls_files import check_metrics_entries, read_tls_config
from ...store.config import MessageStoreConfig
from ...store.data_folder import SOURCES
from . import exposure as up_exposure
from . import test_clock
from .plan import ConfigFile, Member, Shape, check_file, plan

if TYPE_CHECKING:
    from ...remoting.tls_client import ClientTls
    from ...remoting.tls_settings import Tls


# The data folder of `trocket up` when --home is not given.

logger = logging.getLogger(__name__)

EARLIER_HOME: Final = "trocket"
"""Below the user's folder: the default of 0.1. A clone of the repository often has this name."""


def default_home(environment: Mapping[str, str], user_home: Path) -> Path:
    """The folder for the data: that of earlier versions if it has data, else in XDG_DATA_HOME.

    Args:
      environment: that of the process.
      user_home: the user's folder.

    Source: XDG Base Directory Specification: the default is ~/.local/share, and a relative path
      counts as none.
    """
    given = Path(environment.get("XDG_DATA_HOME", ""))
    data_home = given if given.is_absolute() else user_home / ".local" / "share"
    home = data_home / "trocket"
    earlier = user_home / EARLIER_HOME
    if home.exists() or not (earlier / "store" / "commitlog").is_dir():
        return home
    if source_in(earlier, earlier / "store"):
        logger.warning(
            "%(earlier)s has messages of an earlier version, in a folder of source code: they are "
            "not used. To use them, move commitlog, consumequeue, index and config from "
            "there to %(new)s while no broker runs",
            {"earlier": earlier / "store", "new": home / "store"},
        )
        return home
    return earlier


def source_in(*folders: Path) -> Path | None:
    """The first file by which one of the folders is one of source code; None: none is."""
    files = (folder / name for folder in folders for name in SOURCES)
    return next((file for file in files if file.exists()), None)


def refuse_source_folder(home: Path, store: Path) -> None:
    """Refuse to keep data among source code: `git clean` would delete every message.

    Raises: ConfigError: one of the folders has a file of `SOURCES`.
    """
    found = source_in(home, store)
    if found is not None:
        raise ConfigError(
            f"{found.parent} is a folder of source code ({found.name} is there), where a clean "
            "checkout would delete all messages: give another folder, with --home or "
            "storePathRootDir"
        )


EVERYWHERE = ("0.0.0.0", "::")
MEMORY_HOME = "/trocket"
"""The data folder of a broker whose files are in memory."""
MEMORY_LOG_FILE_SIZE = 16 * 1024 * 1024
"""Bytes of a commit log file in memory: room for some messages of the largest size, 4 MiB."""
MEMORY_QUEUE_FILE_SIZE = 2_000 * 20
MEMORY_INDEX_SLOTS = 10_000
"""Sizes that take a MiB at most until there are messages."""


class UpTls(NamedTuple):
    """TLS of the servers.

    Attributes:
      check: of the self-check, if a server only serves TLS; it trusts any certificate, because both
        servers are in this process.
    """

    namesrv: Tls
    broker: Tls
    check: ClientTls | None

    @classmethod
    def of(cls, of_namesrv: TlsConfig, of_broker: TlsConfig) -> UpTls:
        """Read the certificates. Raises: ConfigError: a file cannot be used."""
        from ...remoting.tls_client import ClientTls
        from ...remoting.tls_settings import new_tls

        check = None
        if TlsMode.enforcing in (of_namesrv.mode, of_broker.mode):
            check = ClientTls(with_changes(of_broker, auth_server=False, check_hostname=False))
        return cls(new_tls(of_namesrv), new_tls(of_broker), check)


class Configured(NamedTuple):
    """The settings of the servers, and the warnings about their files.

    Attributes:
      members: the brokers of a cluster, for which `broker`, `store` and `broker_tls` are what they
        have in common; empty: there is one broker.
    """

    namesrv: NamesrvConfig
    broker: BrokerConfig
    store: MessageStoreConfig
    namesrv_tls: TlsConfig
    broker_tls: TlsConfig
    tls: UpTls
    warnings: list[str]
    members: Sequence[Member] = ()

    def sections(self) -> Iterator[tuple[str, list[Any]]]:
        """The name of each server, and its configurations."""
        yield "the name server", [self.namesrv, self.namesrv_tls]
        if not self.members:
            yield "the broker", [self.broker, self.store, self.broker_tls]
        for member in self.members:
            entries = [Entry(key, value, 0) for key, value in member.keys.items()]
            broker, store, _ = read_broker_config(entries, BrokerConfig(), MessageStoreConfig())
            yield member.name, [broker, store, read_tls_config(entries)[0]]


def read_one(options: argparse.Namespace) -> Configured:
    """The configuration of a name server and one broker.

    Raises: see `_read`.
    """
    if options.own_files:
        raise ConfigError("--broker-config needs several brokers: add --masters 2")
    if options.memory and options.home:
        raise ConfigError("--memory keeps no files: give it without --home")
    configured = _read(options, "store", Problems((), ""))
    if configured.broker.enable_controller_mode:
        raise ConfigError(
            "enableControllerMode=true: trocket up has a controller with --failover only; to join "
            "others, run trocket broker"
        )
    return configured


def read_cluster(options: argparse.Namespace, shape: Shape) -> Configured:
    """The configuration of a name server and several brokers.

    Raises: see `_read`.
    """
    for flag, is_given in (("--memory", options.memory), ("--test-clock", options.test_clock)):
        if is_given:
            text = f"{flag} is for one broker: leave out --masters, --slaves, --brokers"
            raise ConfigError(text)
    problems = Problems((), "")
    own = {}
    for text in options.own_files:
        with problems.collected():
            name, _, path = text.partition("=")
            if not path:
                raise ConfigError(
                    f"--broker-config {text}: write NAME=FILE, such as broker-a=a.conf"
                )
            own[name] = ConfigFile(path, read_entries(path))
            _check_own_file(own[name], problems)
    configured = _read(options, "", problems)
    entries = read_entries(options.config_file)
    if configured.broker_tls.enable:
        entries.append(Entry("tls.enable", "true", 0))
    common = ConfigFile(options.config_file or "", entries)
    members, own_warnings = plan(shape, configured.broker, configured.store, common, own)
    return configured._replace(members=members, warnings=[*configured.warnings, *own_warnings])


def _check_own_file(file: ConfigFile, problems: Problems) -> None:
    """Collect what keeps the broker of this file from starting; the start of the others is lost."""
    from ...remoting.tls_settings import new_tls

    with problems.collected():
        check_file(file)
    with problems.collected():
        new_tls(read_tls_config(file.entries, path=file.path)[0])


def _read(options: argparse.Namespace, folder: str, problems: Problems) -> Configured:
    """The configurations and their warnings; flags override files, files override defaults.

    NAMESRV_ADDR is ignored: the name server is in this process.

    Args:
      folder: the folder in --home for the broker's data.
      problems: collects what is wrong; it may have problems already.
    Raises:
      ExposedError: other machines could connect, and there is no --insecure.
      ConfigError: a file or a flag is not valid.
    """
    home = _home(options)
    of_namesrv = _entries(options.namesrv_config, problems)
    of_broker = _entries(options.config_file, problems)
    with problems.collected():
        namesrv, warnings = _namesrv(options, of_namesrv, home)
    with problems.collected():
        broker, store, more = _broker(options, of_broker, str(home / folder))
        if not options.memory:
            refuse_source_folder(home, Path(store.store_path_root_dir))
            test_clock.check(options, home, store)
    for flag, port in (
        ("--namesrv-port", options.namesrv_port),
        ("--broker-port", options.broker_port),
        ("--metrics-port", options.metrics_port),
        ("--console-port", options.console_port),
        ("--control-port", options.control_port),
    ):
        with problems.collected():
            _check_port(flag, port)
    with problems.collected():
        namesrv_tls, broker_tls, tls_warnings = _tls(options, of_namesrv, of_broker)
        tls = UpTls.of(namesrv_tls, broker_tls)
    for entries, path in (
        (of_broker, options.config_file),
        ([*_tls_entries(of_namesrv, of_broker), *of_namesrv], options.namesrv_config),
    ):
        of_file = Problems(entries, path or "")
        with of_file.collected():
            check_metrics_entries(entries)
        with problems.collected():
            of_file.raise_all()
    # All problems at once, so that a user does not mend them one start at a time.
    problems.raise_all()
    if not options.insecure:
        up_exposure.check(namesrv, broker)
    warnings = [*warnings, *more, *tls_warnings, *up_exposure.warnings(namesrv, broker)]
    return Configured(namesrv, broker, store, namesrv_tls, broker_tls, tls, warnings)


def _entries(path: str | None, problems: Problems) -> list[Entry]:
    """The entries of a file; none if it cannot be read, which is a problem."""
    with problems.collected():
        return read_entries(path)
    return []


def _namesrv(
    options: argparse.Namespace, entries: list[Entry], home: Path
) -> tuple[NamesrvConfig, list[str]]:
    namesrv, warnings = read_namesrv_config(
        entries,
        NamesrvConfig(
            bind_address="127.0.0.1",
            kv_config_path=str(home / "namesrv" / "kvConfig.json"),
            config_store_path=str(home / "namesrv" / "namesrv.properties"),
        ),
        path=options.namesrv_config or "",
    )
    if options.host is not None:
        namesrv.bind_address = options.host
    if options.namesrv_port is not None:
        namesrv.listen_port = options.namesrv_port
    return namesrv, warnings


def _broker(
    options: argparse.Namespace, entries: list[Entry], folder: str
) -> tuple[BrokerConfig, MessageStoreConfig, list[str]]:
    from ...common.machine import host_name, local_address

    broker, store, warnings = read_broker_config(
        entries,
        BrokerConfig(
            bind_address="127.0.0.1",
            metrics_exporter_type=MetricsExporterType.PROM,
            trace_topic_enable=True,
        ),
        _store_defaults(options, folder),
        path=options.config_file or "",
    )
    if options.host is not None:
        broker.bind_address = options.host
        if options.host not in EVERYWHERE:
            broker.broker_ip1 = options.host
    if options.broker_port is not None:
        broker.listen_port = options.broker_port
    if options.metrics_port is not None:
        broker.metrics_prom_exporter_port = options.metrics_port
    bound = broker.bind_address
    with_machine(
        broker,
        host_name=host_name(),
        local_address=local_address if bound in EVERYWHERE else lambda: bound,
    )
    return broker, store, warnings


def _tls(
    options: argparse.Namespace, of_namesrv: list[Entry], of_broker: list[Entry]
) -> tuple[TlsConfig, TlsConfig, list[str]]:
    """The name server's settings of TLS, the broker's, and the warnings."""
    broker_tls, warnings = read_tls_config(of_broker, path=options.config_file or "")
    namesrv_tls = broker_tls
    if split_tls(of_namesrv)[0]:
        namesrv_tls, more = read_tls_config(of_namesrv, path=options.namesrv_config or "")
        warnings += more
    if namesrv_tls.mode is TlsMode.enforcing:  # the broker has to reach it
        broker_tls = with_changes(broker_tls, enable=True)
    return namesrv_tls, broker_tls, warnings


def _tls_entries(of_namesrv: list[Entry], of_broker: list[Entry]) -> list[Entry]:
    """The entries of TLS for the name server: the broker's, unless its file has some."""
    return [] if split_tls(of_namesrv)[0] else list(split_tls(of_broker)[0])


def _home(options: argparse.Namespace) -> Path:
    """The data folder, which is then the option `home`, too."""
    if options.memory:
        home = Path(MEMORY_HOME)
    elif options.home:
        home = Path(options.home).absolute()
    else:
        home = default_home(os.environ, Path.home())
    options.home = str(home)
    return home


def _store_defaults(options: argparse.Namespace, folder: str) -> MessageStoreConfig:
    """RocketMQ's defaults, less what a trial does not need.

    A broker.conf means production: RocketMQ's sizes, and room that is reserved. Without one, files
    have the same sizes, so that a broker.conf may come later, but take only what is written.
    """
    if options.memory or options.test_clock:
        small = MessageStoreConfig(
            store_path_root_dir=folder,
            mapped_file_size_commit_log=MEMORY_LOG_FILE_SIZE,
            mapped_file_size_consume_queue=MEMORY_QUEUE_FILE_SIZE,
            max_hash_slot_num=MEMORY_INDEX_SLOTS,
            max_index_num=4 * MEMORY_INDEX_SLOTS,
        )
        if options.test_clock:
            small.timer_precision_ms = 1  # what is due in two hours comes after two hours
        return small
    return MessageStoreConfig(
        store_path_root_dir=folder, preallocate_commit_log=options.config_file is not None
    )


def _check_port(flag: str, given: int | None) -> None:
    if given is None:
        return
    if not 0 <= given <= 65_535 or (flag == "--broker-port" and given in (1, 2)):
        raise ConfigError(f"{flag} {given}: not a usable port")
