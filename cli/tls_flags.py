"""The flags of TLS, and the decorator that adds the flags that all commands share.

No command names those of TLS: `new_client` asks for them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Annotated, Any, Final, get_type_hints

import typer

_PANEL: Final = "TLS"

_given: ContextVar[Mapping[str, Any]] = ContextVar("tls_flags")

_FLAGS: Final[dict[str, Any]] = {
    "tls": Annotated[
        bool,
        typer.Option(
            "--tls",
            help="Connect with TLS; the other flags of TLS imply it. ROCKETMQ_TLS=true.",
            rich_help_panel=_PANEL,
        ),
    ],
    "tls_ca": Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Trust the authority with this certificate. ROCKETMQ_TLS_CA.",
            rich_help_panel=_PANEL,
        ),
    ],
    "tls_cert": Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Show this client's certificate to servers. ROCKETMQ_TLS_CERT.",
            rich_help_panel=_PANEL,
        ),
    ],
    "tls_key": Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Its private key; a password for it is in ROCKETMQ_TLS_KEY_PASSWORD. "
            "ROCKETMQ_TLS_KEY.",
            rich_help_panel=_PANEL,
        ),
    ],
    "tls_no_verify": Annotated[
        bool,
        typer.Option(
            "--tls-no-verify",
            help="Trust any server, as RocketMQ's clients do. ROCKETMQ_TLS_VERIFY=false.",
            rich_help_panel=_PANEL,
        ),
    ],
}


def tls_flags() -> Mapping[str, Any]:
    """The flags of the command that runs, those that were given: attributes of TlsSettings."""
    return _given.get({})


def with_shared_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the flags that all share which ask a cluster; itself, if it asks none.

    A command has them as one parameter, `shared`, a value of `session.Shared`.
    """
    signature = inspect.signature(command)
    if "shared" not in signature.parameters:
        return command
    hints = get_type_hints(command, include_extras=True)
    kind = hints.pop("shared")
    shared = get_type_hints(kind, include_extras=True)

    @functools.wraps(command)
    def wrapper(*args: Any, **values: Any) -> Any:
        flags = {name: values.pop(name) for name in _FLAGS}
        values["shared"] = kind(**{name: values.pop(name) for name in shared})
        token = _given.set(settings_of_flags(flags))
        try:
            return command(*args, **values)
        finally:
            _given.reset(token)

    # The shared flags stand where `shared` does, as the help lists flags in this order.
    own: list[inspect.Parameter] = []
    for name, each in signature.parameters.items():
        if name == "shared":
            defaults = kind._field_defaults
            own += [
                inspect.Parameter(flag, each.kind, default=defaults[flag], annotation=annotation)
                for flag, annotation in shared.items()
            ]
        else:
            own.append(each.replace(annotation=hints.get(name, each.annotation)))
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if name in ("tls", "tls_no_verify") else "",
            annotation=annotation,
        )
        for name, annotation in _FLAGS.items()
    ]
    vars(wrapper)["__signature__"] = inspect.Signature([*own, *more])
    wrapper.__annotations__ = {**hints, **shared, **_FLAGS}
    return wrapper


def settings_of_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of TlsSettings of flags by their parameters, those that are given."""
    found = {
        "enabled": flags.get("tls") or None,
        "ca_file": flags.get("tls_ca") or None,
        "cert_file": flags.get("tls_cert") or None,
        "key_file": flags.get("tls_key") or None,
        "verify": False if flags.get("tls_no_verify") else None,
    }
    return {name: value for name, value in found.items() if value is not None}
