"""`trocket tls`: a private authority with its certificates, and a look at any certificate."""

from __future__ import annotations

import dataclasses
import re
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from ...common.terminal import say, show
from ..session import EXIT_FAILED, AsJson, emit, fail, usage

if TYPE_CHECKING:
    from .authority import Authority, CertificateInfo

FOLDER: Final = Path("tls")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HOST: Final = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_ADDRESS: Final = re.compile(r"\[?(?P<host>[A-Za-z0-9._:-]+?)\]?:(?P<port>[0-9]{1,5})")
_CLIENT_AUTH: Final = ("none", "optional", "require")
_ANY_NETWORK: Final = "192.0.2.1:9"
"""An address of no network (RFC 5737): the way there shows this machine's address."""
_DAY_MS: Final = 86_400_000
_TIMEOUT_S: Final = 3.0

app = typer.Typer(
    no_args_is_help=True,
    help="Make certificates for TLS: a private authority, servers, clients; look at certificates.",
    epilog="Example: trocket tls init /etc/rocketmq/tls --host mq.example --host 10.0.0.7",
)

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The authority's folder.", file_okay=False)
]
AuthorityFolder = Annotated[
    Path,
    typer.Option("--dir", metavar="DIR", help="The authority's folder.", file_okay=False),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="Name this host or address in the certificate (repeatable).",
    ),
]
Days = Annotated[
    int,
    typer.Option("--days", min=1, max=3650, help="Days until the certificates expire."),
]
ClientAuth = Annotated[
    str,
    typer.Option(
        "--client-auth",
        metavar="MODE",
        help="Write to a server's tls.properties whether it asks clients for a certificate: none, "
        "optional or require.",
    ),
]


@app.command("init", epilog="Example: trocket tls init tls --host 10.0.0.7 --client-auth require")
def tls_init(
    folder: Folder = FOLDER,
    host: Hosts = None,
    client_auth: ClientAuth = "optional",
    days: Days = 825,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an authority that is there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make an authority, and a certificate for servers and one for clients.

    DIR/server and DIR/client have all that one machine needs, with the tls.properties that
    RocketMQ's and trocket's servers and RocketMQ's clients read. The server's certificate always
    names localhost, 127.0.0.1, ::1, and this machine's name and addresses.
    """
    from .authority import CA_CERT, CA_KEY, CLIENT, SERVER, Authority, AuthorityError, files_of

    names = _host_names(host or (), with_own=True)
    _check_client_auth(client_auth)
    files = [folder / CA_CERT, folder / CA_KEY, *files_of(folder, SERVER)]
    files += files_of(folder, CLIENT)
    there = [path for path in files if path.exists()]
    if there and not force:
        usage(f"{there[0]} exists: give another folder, or --force to overwrite it")
    try:
        authority = Authority.make(folder, _now(), name="trocket authority")
        authority.issue(SERVER, names=names, days=days, client_auth=client_auth)
        authority.issue(CLIENT, names=(), days=days, client_auth=client_auth)
    except AuthorityError as error:
        fail(error)
    _show_made(files, names, as_json=as_json)


@app.command("issue", epilog="Example: trocket tls issue broker-b --host 10.0.0.8")
def tls_issue(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The certificate's name, and its folder's.")
    ],
    host: Hosts = None,
    client_auth: ClientAuth = "optional",
    days: Days = 825,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a certificate that is there.")
    ] = False,
    folder: AuthorityFolder = FOLDER,
    as_json: AsJson = False,
) -> None:
    """Make one more certificate: for a server with --host, else for a client."""
    from .authority import AuthorityError, files_of

    if not _NAME.fullmatch(name):
        usage(f"{name!r} is not a name: use letters, digits, '.', '_' and '-'")
    names = _host_names(host or (), with_own=False)
    _check_client_auth(client_auth)
    there = [path for path in files_of(folder, name) if path.exists()]
    if there and not force:
        usage(f"{there[0]} exists: give another name, or --force to overwrite it")
    try:
        files = _authority(folder).issue(name, names=names, days=days, client_auth=client_auth)
    except AuthorityError as error:
        fail(error)
    _show_made(files, names, as_json=as_json)


@app.command("renew", epilog="Example: trocket tls renew --dir /etc/rocketmq/tls")
def tls_renew(
    name: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Which ones. Default: all.")
    ] = None,
    days: Days = 825,
    folder: AuthorityFolder = FOLDER,
    as_json: AsJson = False,
) -> None:
    """Make certificates again, with new keys and for the same names; the authority stays.

    Servers use them for new connections within seconds, without a restart.
    """
    from .authority import AuthorityError

    try:
        authority = _authority(folder)
        files = [
            path
            for each in name or authority.issued()
            for path in authority.renew(each, days=days)[1:3]
        ]
    except AuthorityError as error:
        fail(error)
    _show_made(files, (), as_json=as_json)


@app.command("show", epilog="Example: trocket tls show 127.0.0.1:10911 --ca tls/ca.crt")
def tls_show(
    what: Annotated[
        str,
        typer.Argument(metavar="FILE|HOST:PORT", help="A file in PEM, or the port of a server."),
    ],
    ca: Annotated[
        Path | None,
        typer.Option("--tls-ca", metavar="FILE", help="Check that this authority signed it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a certificate: for whom it is, until when it is valid, and whether something is wrong.

    Exit status 1: it has expired, or the authority of --ca did not sign it.
    """
    from .authority import AuthorityError, info_of, problems_of, read_certificates

    now = _now()
    try:
        is_file = Path(what).is_file()
        certificates = read_certificates(Path(what)) if is_file else [_of_server(what)]
        authorities = [] if ca is None else read_certificates(ca)
    except AuthorityError as error:
        fail(error)
    shown = [
        (info_of(each), problems_of(each, authorities if at == 0 else (), now))
        for at, each in enumerate(certificates)
    ]
    if as_json:
        emit([{**dataclasses.asdict(info), "problems": wrong} for info, wrong in shown])
    else:
        now_ms = int(now.timestamp() * 1000)
        is_signed = "yes" if ca is not None else ""
        for info, wrong in shown:
            show(["Name", "Value"], _rows(info, wrong, now_ms, is_signed))
            is_signed = ""
    if any(wrong for _, wrong in shown):
        say(f"trocket: {what}: " + "; ".join(text for _, wrong in shown for text in wrong))
        raise typer.Exit(EXIT_FAILED)


def _now() -> datetime:
    from ...common.clock import SystemClock

    return datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC)


def _rows(info: CertificateInfo, wrong: list[str], now_ms: int, is_signed: str) -> list[list[Any]]:
    left = (info.not_after_ms - now_ms) // _DAY_MS
    rows = [
        ["subject", info.subject],
        ["issuer", info.issuer],
        ["names", " ".join(info.names)],
        ["valid from", _time(info.not_before_ms)],
        ["valid until", f"{_time(info.not_after_ms)} ({left} days left)"],
        ["uses", "authority" if info.is_authority else " ".join(info.uses)],
        ["serial", info.serial],
    ]
    if is_signed and not wrong:
        rows.append(["signed by --ca", is_signed])
    return [*rows, *(["wrong", text] for text in wrong)]


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _of_server(address: str) -> Any:
    """The certificate of a server. Raises: AuthorityError: it cannot be decoded."""
    from .authority import certificate_of

    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found["port"]) < 65_536:
        usage(f"{address!r} is neither a file nor HOST:PORT of a server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # it is shown, whatever it is
    context.verify_mode = ssl.CERT_NONE
    host = found["host"]
    try:
        with (
            socket.create_connection((host, int(found["port"])), timeout=_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            return certificate_of(secure.getpeercert(binary_form=True) or b"")
    except ssl.SSLError as error:
        _no_tls(address, error.reason or str(error))
    except ConnectionResetError:
        _no_tls(address, "it closed the connection")
    except OSError as error:
        fail(f"{address}: {error.strerror or error}")


def _no_tls(address: str, why: str) -> NoReturn:
    fail(f"{address}: no TLS could be set up ({why}): is tls.server.mode disabled there?")


def _authority(folder: Path) -> Authority:
    """Raises: AuthorityError: the folder has none."""
    from .authority import CA_CERT, Authority

    if not (folder / CA_CERT).exists():
        usage(f"{folder} has no authority: make one by `trocket tls init {folder}`, or give --dir")
    return Authority(folder, _now())


def _check_client_auth(mode: str) -> None:
    if mode not in _CLIENT_AUTH:
        usage(f"--client-auth: {mode!r} is not one of {', '.join(_CLIENT_AUTH)}")


def _host_names(given: Sequence[str], *, with_own: bool) -> list[str]:
    """The names of a server's certificate, each once; usage ends if one is neither a name nor an
    address."""
    from .authority import address_of

    names = []
    for text in given:
        address = address_of(text.strip("[]"))
        if address is None and not _HOST.fullmatch(text):
            usage(f"--host: {text!r} is neither a host's name nor an address")
        names.append(text if address is None else str(address))
    if with_own:
        names += ["localhost", "127.0.0.1", "::1", *_own_names()]
    return list(dict.fromkeys(names))


def _own_names() -> list[str]:
    """This machine's name and addresses, as far as it knows them."""
    from ...client.connection.client_id import local_ip

    name = socket.gethostname()
    names = [name] if _HOST.fullmatch(name) else []
    names.append(local_ip(_ANY_NETWORK))
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return names
    # The zone of a link-local address, "%eth0", is no part of it.
    return names + [str(each[4][0]).partition("%")[0] for each in found]


def _show_made(files: Sequence[Path], names: Sequence[str], *, as_json: bool) -> None:
    made = [(str(path), _end_ms(path)) for path in files]
    if as_json:
        ends = [{"file": path, "valid_until_ms": end_ms} for path, end_ms in made]
        emit({"files": ends, "names": list(names)})
        return
    rows = [(path, "" if end_ms is None else _time(end_ms)) for path, end_ms in made]
    show(["File", "Valid until"], rows)
    if names:
        say(f"trocket: the certificate names {', '.join(names)}")


def _end_ms(path: Path) -> int | None:
    """When a certificate ends, in ms since 1970; None: the file is no certificate."""
    from .authority import info_of, read_certificate

    return info_of(read_certificate(path)).not_after_ms if path.suffix == ".crt" else None
