"""A job's connection to a cluster: from its flags to options of sources, sinks and clients."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trocket.blocking import Client
from trocket.remoting.cluster_url import URL_SCHEME
from trocket.remoting.signature import credentials_of
from trocket.spark.cluster import client_of
from trocket.spark.errors import OptionError
from trocket.spark.jobs.flags import KEYS, JobFlags, names_of
from trocket.spark.options import read_options
from trocket.spark.sink_options import SinkOptions, sink_options
from trocket.spark.source_options import FORMAT, ConnectionOptions, SourceOptions, source_options


def connection(given: JobFlags) -> dict[str, str]:
    """The options of the connection, without those of `--option`.

    Raises: OptionError: the environment has only one of the two keys.
    """
    found = {
        "nameServer": given.name_server,
        "namespace": given.namespace,
        "tls": "true" if given.tls else None,
        "tlsCaFile": given.tls_ca_file,
        "tlsCertFile": given.tls_cert_file,
        "tlsKeyFile": given.tls_key_file,
        "tlsKeyPassword": os.environ.get(KEYS["tlsKeyPassword"]) if given.tls_cert_file else None,
        "tlsVerify": "false" if given.tls_no_verify else None,
        **_account(given),
    }
    return {name: text for name, text in found.items() if text}


def cluster_name(given: JobFlags) -> str:
    """The name servers without credentials, for reports and error messages.

    `rocketmq://access:secret@host:9876?security_token=…` is `host:9876`.
    """
    return str(given.name_server).rpartition("@")[2].partition("?")[0].removeprefix(URL_SCHEME)


def _account(given: JobFlags) -> dict[str, str]:
    if given.secrets_file:
        return {"secretsFile": given.secrets_file}
    if "@" in given.name_server:  # an account in the URL takes precedence
        return {}
    try:
        found = credentials_of(os.environ)
    except ValueError as error:
        raise OptionError(str(error)) from None
    if found is None:
        return {}
    return {
        "accessKey": found.access_key,
        "secretKey": found.secret_key,
        "securityToken": found.security_token or "",
    }


def reading(given: JobFlags, **own: str) -> dict[str, str]:
    """The options of a source.

    Args:
      own: options that the job sets itself.

    Raises: OptionError: an option is invalid. Checked here, as Spark hides errors of a stream's
      worker.
    """
    found = _with_options(given, SourceOptions, own)
    source_options(found)
    return found


def writing(given: JobFlags, **own: str) -> dict[str, str]:
    """The options of a sink; see `reading`."""
    found = _with_options(given, SinkOptions, own)
    sink_options(found)
    return found


def client(given: JobFlags) -> Client:
    """This process's shared client; do not close it. Raises: OptionError: an option is invalid."""
    found = _with_options(given, ConnectionOptions, {})
    return client_of(read_options(ConnectionOptions, found, FORMAT))


def _with_options(given: JobFlags, kind: type, own: Mapping[str, str]) -> dict[str, str]:
    """The options of the job and its flags, and those of `--option` that belong to `kind`.

    Raises: OptionError: `--option` repeats an option of the job.
    """
    fixed = {**connection(given), **own}
    mine = names_of(kind)
    chosen = {key: value for key, value in given.options if key.lower() in mine}
    twice = sorted(set(chosen) & set(fixed))
    if twice:
        raise OptionError(f"--option {twice[0]}: the job sets it itself; use the job's flags")
    return {**chosen, **fixed}
