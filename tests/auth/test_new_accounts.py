"""New users and rules that are refused or warned of."""

from __future__ import annotations

import pytest

from trocket.auth.accounts import Accounts
from trocket.auth.model import User
from trocket.remoting.errors import RequestRefused

from .signed import ALICE, allow


@pytest.mark.parametrize(
    "name", ["eve\n2026 INFO all is well", "a\rb", "a\tb", "a\x00", "a\u2028b"]
)
def test_a_name_that_breaks_lines_of_the_log_is_refused(name) -> None:
    with pytest.raises(RequestRefused, match=r"control character U\+"):
        Accounts().create_user(User(name, "secret-of-eve"))


def test_a_short_password_is_taken_with_a_warning(caplog) -> None:
    accounts = Accounts()
    accounts.create_user(User("eve", "x"))
    accounts.create_user(User("bob", "1234567"))
    accounts.update_user("bob", password="yz")
    assert [record.args["user"] for record in caplog.records] == ["eve", "bob"]
    assert "the password of user eve has 1 characters" in caplog.text


@pytest.mark.parametrize(
    "resource", ["Topic:S*t", "Topic:topic:x", "Group:a b", "Topic:", "Namespace:n"]
)
def test_a_rule_that_can_never_match_is_taken_with_a_warning(resource, caplog) -> None:
    accounts = Accounts()
    accounts.create_user(ALICE)
    allow(
        accounts, [f"{resource} Pub", "Topic:%RETRY%g_1 Sub", "Topic:a* Pub", "Cluster:my.one Get"]
    )
    assert len(caplog.records) == 1
    assert f"the rule of User:alice for {resource} never matches" in caplog.text
