"""plain_acl.yml: what it means, what is wrong with it, and its changes by requests."""

from __future__ import annotations

import contextlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trocket.auth.plain_acl import (
    FILE_SIZE_MAX,
    Perm,
    PlainAcl,
    PlainAclError,
    read_file,
    with_account,
    with_white_addresses,
    without_account,
)
from trocket.auth.remote_address import parts_of
from trocket.common.config import ConfigError
from trocket.remoting.bodies import PlainAccessConfig

# RocketMQ's example, conf/plain_acl.yml of 4.9.7, shortened.
EXAMPLE = b"""\
# comments are allowed
globalWhiteRemoteAddresses:
  - 10.10.103.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      - groupA=DENY
      - groupB=PUB|SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    admin: true
dataVersion:
  - counter: 3
    timestamp: 1700000000000
"""


def account(**members: object) -> bytes:
    """A file with one account."""
    values = {"accessKey": "account-1", "secretKey": "secret-12", **members}
    return yaml.safe_dump({"accounts": [values]}).encode()


def test_the_example_of_rocketmq() -> None:
    file = read_file(EXAMPLE, "plain_acl.yml")
    first, second = file.accounts
    assert (first.access_key, first.secret_key, first.is_admin) == ("RocketMQ", "12345678", False)
    assert not first.allows("topicA", Perm.PUB | Perm.SUB)
    assert first.allows("topicB", Perm.PUB)
    assert first.allows("topicC", Perm.SUB)
    assert not first.allows("topicC", Perm.PUB)
    assert not first.allows("another", Perm.PUB | Perm.SUB)
    assert first.allows("%RETRY%another", Perm.SUB)
    assert not first.allows("%RETRY%groupA", Perm.SUB)
    assert second.may_everything
    assert parts_of("192.168.1.7") in second.white_addresses
    assert parts_of("10.10.103.1") in file.white_addresses[0]
    assert (file.version.counter, file.version.timestamp) == (3, 1_700_000_000_000)
    assert file.warnings == ()


@pytest.mark.parametrize("text", [b"", b"# nothing\n", b"accounts:\n", b"{}"])
def test_a_file_without_accounts(text: bytes) -> None:
    assert read_file(text, "x.yml").accounts == ()


@pytest.mark.parametrize(
    ("spelling", "secret"),
    [
        ("12345678", "12345678"),
        ("'12345678'", "12345678"),
        ("01234567", "01234567"),  # SnakeYAML makes an octal number of it
        ("1234_5678", "1234_5678"),
        ("1.50000e10", "1.50000e10"),
        ("2024-01-01", "2024-01-01"),
        ("0x12345678", "0x12345678"),
    ],
)
def test_numbers_are_read_as_they_are_written(spelling: str, secret: str) -> None:
    text = f"accounts:\n- accessKey: 87654321\n  secretKey: {spelling}\n"
    (found,) = read_file(text.encode(), "x.yml").accounts
    assert (found.access_key, found.secret_key) == ("87654321", secret)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"accounts: [", "line 2: it is not YAML"),
        (b"\xff\xfe\x00", "it is not YAML"),
        (b"[" * 5_000, "it is not YAML"),
        (b"a: &x [*x]\nb: *y", "it is not YAML"),
        (b"accounts:\naccounts:\n", "line 2: it is not YAML: a key occurs twice"),
        (b"- a", "it is a list and should have the members"),
        (b"text", "it is a text and should have the members"),
        (b"accounts: {a: b}", "accounts is a mapping, and should be a list"),
        (b"accounts:\n- 5", "line 2: account 1: it is a text, and should begin with accessKey"),
        (
            account(accessKey="123456"),
            "account 123456: The accessKey=123456 and secretKey=(hidden)",
        ),
        (account(secretKey="hidden"), "cannot be null and length should longer than 6"),
        (account(secretKey=None), "secretKey=null"),
        (account(topicPerms=["a"]), "Parse resource permission failed for topic:a"),
        (account(groupPerms=["a=PUB=SUB"]), "Parse resource permission failed for group:a=PUB=SUB"),
        (account(topicPerms="a=PUB"), "account-1: Expected `array | null`, got `str`"),
        (account(admin="perhaps"), "$.admin"),
        (account(whiteRemoteAddress="x"), "Netaddress examine Exception netaddress is x"),
        (b"globalWhiteRemoteAddresses: [x]", "Netaddress examine Exception netaddress is x"),
        (b"dataVersion: [{counter: x}]", "dataVersion"),
        (b" " * (FILE_SIZE_MAX + 1), f"the limit is {FILE_SIZE_MAX}"),
        (b"? [a]\n: b", "line 1: it is not YAML"),
        (b"accounts:\n- {{a: b}: c}", "line 2: it is not YAML"),
        (account(secretKey=5) + b"  admin: !!bool perhaps", "line 4: it is not YAML"),
        (b"accounts:\n- &a {secretKey: *a}", "line 2: account 1: it contains itself"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: bytes, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_file(text, "conf/plain_acl.yml")
    assert str(caught.value).startswith("conf/plain_acl.yml")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "secret",
    [
        "hidden",
        "!a-secret",
        "*a-secret",
        "[a-secret]",
        "{a-secret: 1}",
        "!!int a-secret",
        "!!float a-secret",
        "!!timestamp a-secret",
    ],
)
def test_no_error_and_no_value_shows_a_secret(secret: str) -> None:
    text = f"accounts:\n- accessKey: account-1\n  secretKey: {secret}\n"
    with pytest.raises(ConfigError) as caught:
        read_file(text.encode(), "x.yml")
    assert "a-secret" not in str(caught.value)
    assert "=hidden" not in str(caught.value)
    file = read_file(account(secretKey="a-long-secret"), "x.yml")
    assert "a-long-secret" not in repr((file, PlainAcl([file]), file.configs))


def test_parts_without_effect_are_warned_of() -> None:
    file = read_file(account(topicPerm=["a=PUB"], topicPerms=["b=WHAT"]) + b"more: 1\n", "x.yml")
    unknown, member, perm = file.warnings
    assert "x.yml: 'more' has no effect" in unknown
    assert "account account-1 has 'topicPerm', which has no effect" in member
    assert "the permission 'WHAT', which counts as DENY" in perm
    assert not file.accounts[0].allows("b", Perm.PUB | Perm.SUB)


def test_an_account_counts_where_it_is_first() -> None:
    first = read_file(account(secretKey="secret-of-a"), "acl/a.yml")
    twice = account(accessKey="account-2") + account(accessKey="account-2")[10:]
    second = read_file(account(secretKey="secret-of-b"), "plain_acl.yml")
    acl = PlainAcl([first, read_file(twice, "acl/b.yml"), second])
    assert acl.accounts["account-1"].secret_key == "secret-of-a"
    assert [config.access_key for config in acl.configs] == ["account-1", "account-2"]
    (repeated, elsewhere) = acl.warnings
    assert "acl/b.yml" in repeated
    assert "is here twice" in repeated
    assert "the account account-1 is also in acl/a.yml, which counts" in elsewhere


def test_an_administrator_with_permissions_is_held_to_them() -> None:
    (admin,) = read_file(account(admin=True, topicPerms=["a=PUB"]), "x.yml").accounts
    assert admin.is_admin
    assert not admin.may_everything
    assert admin.allows("a", Perm.PUB)
    assert not admin.allows("b", Perm.PUB)


def test_an_account_is_added_and_changed() -> None:
    new = PlainAccessConfig("account-2", "secret-of-2", topic_perms=["a=PUB"])
    text = with_account(EXAMPLE, "x.yml", new, 5)
    change = PlainAccessConfig("account-2", "secret-too", "10.0.0.1", admin=True)
    text = with_account(text, "x.yml", change, 7)
    file = read_file(text, "x.yml")
    changed = file.accounts[-1]
    assert [each.access_key for each in file.accounts] == ["RocketMQ", "rocketmq2", "account-2"]
    assert (changed.secret_key, changed.is_admin) == ("secret-too", True)
    assert changed.allows("a", Perm.PUB)  # what the change does not name stays
    assert (file.version.counter, file.version.timestamp) == (5, 7)
    assert file.accounts[0] == read_file(EXAMPLE, "x.yml").accounts[0]
    # RocketMQ reads it, too: a secret of digits is a text there as well.
    assert yaml.safe_load(text)["accounts"][0]["secretKey"] == "12345678"


def test_an_account_is_removed() -> None:
    text = without_account(EXAMPLE, "x.yml", "RocketMQ", 5)
    assert text is not None
    assert [each.access_key for each in read_file(text, "x.yml").accounts] == ["rocketmq2"]
    assert without_account(text, "x.yml", "RocketMQ", 5) is None


def test_white_addresses_are_replaced() -> None:
    text = with_white_addresses(b"", "x.yml", ["10.0.0.*", "", "10.1.1.1"], 5)
    file = read_file(text, "x.yml")
    assert [each.text for each in file.white_addresses] == ["10.0.0.*", "", "10.1.1.1"]
    with pytest.raises(PlainAclError, match="Netaddress examine Exception netaddress is x"):
        with_white_addresses(EXAMPLE, "x.yml", ["x"], 5)


# Recorded from 4.9.7, without the secret that its first text shows.
TOO_SHORT = "The accessKey={} and secretKey={} cannot be null and length should longer than 6"
NO_PERM = (
    "Parse resource permission error for {}.\nThe expected permissions are 'SUB' or 'PUB' or "
    "'SUB|PUB' or 'PUB|SUB'."
)
NO_PAIR = (
    "Parse Resource format error for a.\nThe expected resource format is 'Res=Perm'. For example: "
    "topicA=SUB"
)
REFUSED = [
    (PlainAccessConfig("short", "secret-12"), TOO_SHORT.format("short", "(hidden)")),
    (PlainAccessConfig("account-1"), TOO_SHORT.format("account-1", "null")),
    (PlainAccessConfig(None, "secret-12"), TOO_SHORT.format("null", "(hidden)")),
    (PlainAccessConfig("account-1", "secret-12", topic_perms=["a"]), NO_PAIR),
    (PlainAccessConfig("account-1", "secret-12", group_perms=["a=X"]), NO_PERM.format("a=X")),
    (
        PlainAccessConfig("account-1", "secret-12", "nonsense"),
        "Netaddress examine Exception netaddress is nonsense",
    ),
    (
        PlainAccessConfig("account-1", "secret-12", default_topic_perm="X"),
        NO_PERM.format("defaultTopicPerm=X"),
    ),
]


@pytest.mark.parametrize(("config", "text"), REFUSED)
def test_changes_are_refused_with_rocketmqs_texts(config: PlainAccessConfig, text: str) -> None:
    with pytest.raises(PlainAclError) as caught:
        with_account(EXAMPLE, "x.yml", config, 5)
    assert str(caught.value) == text


def test_a_damaged_file_is_not_changed() -> None:
    with pytest.raises(ConfigError):
        with_account(b"accounts: {", "x.yml", PlainAccessConfig("account-1", "secret-12"), 5)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=7, max_size=20)


@given(TEXTS, TEXTS)
def test_any_text_survives_the_file(access_key: str, secret_key: str) -> None:
    text = with_account(b"", "x.yml", PlainAccessConfig(access_key, secret_key), 5)
    (found,) = read_file(text, "x.yml").accounts
    assert (found.access_key, found.secret_key) == (access_key, secret_key)


@given(st.text("accounts:- {}[]!&*#'\"|>%@`\n\t,?", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        read_file(text.encode(), "x.yml")
