"""The settings of TLS as a server's files have them.

A shell without trio and `ssl`; `tls_config.py` has the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..common.config import ConfigError, Entry
from ..common.process import read_entries
from .tls_config import (
    CONFIG_FILE_DEFAULT,
    MODE_KEY,
    TlsConfig,
    TlsMode,
    check_metrics_tls,
    config_file_of,
    merge_tls,
    split_tls,
    with_changes,
)

_PATHS = (
    "config_file",
    "server_key_path",
    "server_cert_path",
    "server_trust_cert_path",
    "server_sni_path",
    "client_key_path",
    "client_cert_path",
    "client_trust_cert_path",
)


def read_tls_config(entries: Sequence[Entry], *, path: str = "") -> tuple[TlsConfig, list[str]]:
    """The settings of TLS from a server's own file, and from the file that it names.

    Args:
      entries: all entries of the server's file.
      path: of that file, for messages.

    Returns: the settings, with absolute paths, and warnings of one line each.
    Raises: ConfigError: a file cannot be read, a key is unknown or a value is wrong.
    """
    own = split_tls(entries)[0]
    file_path = _further_file(own)
    of_file = read_entries(file_path) if file_path else []
    config, warnings = merge_tls(of_file, own, file_path=file_path, own_path=path)
    absolute = {name: getattr(config, name) for name in _PATHS}
    config = with_changes(
        config, **{name: str(Path(each).absolute()) for name, each in absolute.items() if each}
    )
    return config, [*warnings, *open_keys(config)]


def check_metrics_entries(entries: Sequence[Entry]) -> None:
    """`check_metrics_tls` of a server's file, whatever else is wrong there.

    Args:
      entries: all entries of the server's file.
    Raises: ConfigError: metrics are to be served by TLS, which is switched off.
    """
    own = split_tls(entries)[0]
    file_path = _further_file(own)
    last = {entry.key: entry.value.strip() for entry in entries}
    if last.get("metricsTlsEnable", "").lower() != "true":
        return
    with suppress(ConfigError):  # `read_tls_config` reports it
        of_file = read_entries(file_path) if file_path else []
        last = {entry.key: entry.value.strip() for entry in (*of_file, *own)}
    if last.get(MODE_KEY) == TlsMode.disabled.value:
        check_metrics_tls(True, TlsMode.disabled)


def _further_file(own: Sequence[Entry]) -> str:
    """The file of TLS settings that a server's entries name, or the default one; "": none."""
    path = config_file_of(own) or CONFIG_FILE_DEFAULT
    if path == CONFIG_FILE_DEFAULT and not Path(path).is_file():
        return ""  # named or not: a configuration that -p printed names it
    return path


def open_keys(config: TlsConfig) -> list[str]:
    """A warning for each private key that every user of the machine may read."""
    keys = {
        "tls.server.keyPath": config.server_key_path,
        "tls.client.keyPath": config.client_key_path,
    }
    warnings = []
    for key, path in keys.items():
        try:
            is_open = bool(path) and Path(path).stat().st_mode & 0o007 != 0
        except OSError:  # the check of the files reports it
            continue
        if is_open:
            warnings.append(
                f"{key}={path}: every user of this machine may use this key: chmod 600 {path}"
            )
    return warnings
