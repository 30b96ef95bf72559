"""How a job reaches a cluster: the flags of all jobs, and what sources, sinks and clients get.

No flag takes a secret, as others see command lines: keys come from a file, or from the variables
that the `trocket` command reads, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping
from functools import partial
from typing import Final

from trocket.blocking import Client
from trocket.client.core.signature import credentials_of
from trocket.remoting.hosts import URL_SCHEME
from trocket.spark.cluster import client_of
from trocket.spark.errors import OptionError, nearest
from trocket.spark.options import key_of, read_options
from trocket.spark.sink_options import SinkOptions, sink_options
from trocket.spark.source_options import FORMAT, ConnectionOptions, SourceOptions, source_options

KEYS: Final = {
    "accessKey": "ROCKETMQ_ACCESS_KEY",
    "secretKey": "ROCKETMQ_SECRET_KEY",
    "securityToken": "ROCKETMQ_SECURITY_TOKEN",
}
"""Options that are an account, and the variables that they are read from."""


def add_connection(parser: argparse.ArgumentParser, *, has_sink: bool) -> None:
    """The flags that say how a cluster is reached.

    Args:
      has_sink: whether the job writes by the format, so that --option may be one of a sink.
    """
    known = names_of(SourceOptions) | (names_of(SinkOptions) if has_sink else {})
    formats = "source and sink" if has_sink else "source"
    cluster = parser.add_argument_group("the cluster")
    cluster.add_argument("--name-server", metavar="HOST:PORT", help="several with ; between them")
    cluster.add_argument("--namespace", metavar="NAME", help="of topics and groups")
    cluster.add_argument(
        "--secrets-file", metavar="PATH",
        help="with lines of accessKey and secretKey, as RocketMQ's conf/tools.yml; on all"
        f" machines; else {', '.join(KEYS.values())} are read",
    )  # fmt: skip
    cluster.add_argument("--tls", action="store_true", help="name servers and brokers speak TLS")
    cluster.add_argument("--tls-ca-file", metavar="PATH", help="who vouches for them; implies TLS")
    cluster.add_argument("--option", action="append", default=[], metavar="KEY=VALUE",
                         type=partial(_pair, known),
                         help=f"for each {FORMAT} {formats} of the job, such as numRetries=600;"
                         " several times")  # fmt: skip


def names_of(kind: type) -> dict[str, str]:
    """The options of a format, by their names in lower case: Spark keeps no case."""
    names = [key_of(field.name) for field in dataclasses.fields(kind)]
    return {name.lower(): name for name in names}


def _pair(known: Mapping[str, str], text: str) -> tuple[str, str]:
    """One `--option`; argparse says which flag it is of, and ends with status 2."""
    key, is_pair, value = text.partition("=")
    key = key.strip()
    if not is_pair or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    name = known.get(key.lower())
    if name in KEYS:
        raise argparse.ArgumentTypeError(
            f"others see a command line: give {name} by --secrets-file, or by {KEYS[name]}"
        )
    if name is None:
        raise argparse.ArgumentTypeError(
            f"no {FORMAT} here has an option {key!r}{nearest(key, known.values())}"
        )
    return name, value


def connection(given: argparse.Namespace) -> dict[str, str]:
    """The options that say how the cluster is reached, without those of `--option`.

    Raises: OptionError: half an account is in the environment.
    """
    found = {
        "nameServer": given.name_server,
        "namespace": given.namespace,
        "tls": "true" if given.tls else None,
        "tlsCaFile": given.tls_ca_file,
        **_account(given),
    }
    return {name: text for name, text in found.items() if text}


def cluster_name(given: argparse.Namespace) -> str:
    """The name servers, as reports and errors may show them: without account, token and the like.

    `rocketmq://access:secret@host:9876?security_token=…` is `host:9876`.
    """
    return str(given.name_server).rpartition("@")[2].partition("?")[0].removeprefix(URL_SCHEME)


def _account(given: argparse.Namespace) -> dict[str, str]:
    if given.secrets_file:
        return {"secretsFile": given.secrets_file}
    if "@" in given.name_server:  # a URL's account, which counts more
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


def reading(given: argparse.Namespace, **own: str) -> dict[str, str]:
    """The options of a source.

    Args:
      own: what the job itself says.

    Raises: OptionError: they cannot be right. Here, as Spark hides what a stream's worker says.
    """
    found = _with_options(given, SourceOptions, own)
    source_options(found)
    return found


def writing(given: argparse.Namespace, **own: str) -> dict[str, str]:
    """The options of a sink; see `reading`."""
    found = _with_options(given, SinkOptions, own)
    sink_options(found)
    return found


def client(given: argparse.Namespace) -> Client:
    """This process's client, which is not to be closed. Raises: OptionError."""
    found = _with_options(given, ConnectionOptions, {})
    return client_of(read_options(ConnectionOptions, found, FORMAT))


def _with_options(given: argparse.Namespace, kind: type, own: Mapping[str, str]) -> dict[str, str]:
    """What the job and the flags say, and those of `--option` that are of this kind.

    Raises: OptionError: both say the same.
    """
    said = {**connection(given), **own}
    mine = names_of(kind)
    chosen = {key: value for key, value in given.option if key.lower() in mine}
    twice = sorted(set(chosen) & set(said))
    if twice:
        raise OptionError(f"--option {twice[0]}: the job says it itself; use its own flags")
    return {**chosen, **said}
