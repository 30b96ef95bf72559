"""client/connection/client_id.py against Apache's ClientConfig."""

from __future__ import annotations

import pytest

from trocket.client.connection.client_id import build_client_id, default_instance_name

from .core.apache_tables import table


@pytest.mark.parametrize("row", table("client_ids"), ids=lambda row: row["id"])
def test_a_client_is_called_as_by_apache(row):
    made = build_client_id("10.0.0.1", "name", unit_name=row["unit"], is_stream=row["stream"])
    assert made == row["id"]


def test_without_a_name_an_instance_is_called_by_process_and_time():
    assert default_instance_name(12, 345) == "12#345"
    assert build_client_id("::1", default_instance_name(12, 345)) == "::1@12#345"


@pytest.mark.parametrize(("ip", "name", "what"), [("", "n", "ip"), ("i", " ", "instance name")])
def test_what_is_blank_is_refused(ip, name, what):
    with pytest.raises(ValueError, match=f"the {what} of a client id is blank"):
        build_client_id(ip, name)


def test_a_blank_unit_is_none():
    assert build_client_id("i", "n", unit_name="  ") == "i@n"
