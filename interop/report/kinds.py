"""Titles and descriptions of kinds of cells, and cells grouped by reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .cells import Cell, Kind

KIND_TITLES: Mapping[Kind, str] = {
    Kind.SCENARIO: "Scenarios",
    Kind.ACCOUNTS: "Accounts",
    Kind.WIRE: "Wire",
    Kind.STORE: "Store",
    Kind.MQADMIN: "mqadmin",
    Kind.ORACLE: "Oracle",
    Kind.TLS: "TLS",
    Kind.PROXY: "Proxy",
}

KIND_ABOUT: Mapping[Kind, str] = {
    Kind.SCENARIO: "Features of the clients on each broker, without and with faults.",
    Kind.ACCOUNTS: "The clients with access control of both generations: features with an account "
    "that may use them, and the refusals of others.",
    Kind.WIRE: "The same requests to two brokers, their answers compared field by field.",
    Kind.STORE: "Files written by one broker, opened and served by another.",
    Kind.MQADMIN: "The output of Apache's mqadmin, compared with its output for Apache's broker.",
    Kind.ORACLE: "Data that we encode, decoded by Apache's classes, and the reverse.",
    Kind.TLS: "Clients and brokers by TLS, with the files that `trocket tls init` made for all.",
    Kind.PROXY: "Clients that reach each broker through Apache's proxy in cluster mode, by gRPC "
    "and by its remoting port.",
}


def by_reason(cells: Iterable[Cell]) -> list[tuple[str, list[Cell]]]:
    """Group cells by their detail, in the order of the run."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.detail, []).append(cell)
    return list(found.items())
