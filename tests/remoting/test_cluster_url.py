"""remoting/cluster_url.py: what a URL means, and what is said of one that means nothing."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trocket.remoting.cluster_url import ClientUrl, parse_name_servers, parse_url
from trocket.remoting.signature import Credentials
from trocket.remoting.tls_options import TlsOptions

GOOD = {
    "host:1": ClientUrl(("host:1",)),
    "host": ClientUrl(("host:9876",)),
    " a:1;b:2; ": ClientUrl(("a:1", "b:2")),
    "a:1; b:2": ClientUrl(("a:1", "b:2")),
    "a:1;b:2;a:1": ClientUrl(("a:1", "b:2")),
    "127.0.0.1:0009": ClientUrl(("127.0.0.1:9",)),
    "[::1]": ClientUrl(("[::1]:9876",)),
    "[fe80::1%eth0]:65535;h_1.x-y": ClientUrl(("[fe80::1%eth0]:65535", "h_1.x-y:9876")),
    "rocketmq://host": ClientUrl(("host:9876",)),
    "RocketMQ://host:5/": ClientUrl(("host:5",)),
    "rocketmq://host?": ClientUrl(("host:9876",)),
    "rocketmq://a;b:2?tls=TRUE": ClientUrl(("a:9876", "b:2"), tls=True),
    "rocketmq://a?tls=false&instance=DEFAULT": ClientUrl(("a:9876",)),
    "rocketmq://a?tls_ca=/c%26a": ClientUrl(("a:9876",), tls=TlsOptions(ca_file="/c&a")),
    "rocketmq://a?tls_cert=c&tls_key=k&tls_verify=false": ClientUrl(
        ("a:9876",), tls=TlsOptions(cert_file="c", key_file="k", verify=False)
    ),
    "rocketmq://a?tls=true&tls_check_hostname=false": ClientUrl(
        ("a:9876",), tls=TlsOptions(check_hostname=False)
    ),
    "rocketmq://a?namespace=&": ClientUrl(("a:9876",)),
    "rocketmq://ak:sk@a;[::1]:2?namespace=n|s-1_&instance=i%201&security_token=t%26%40": ClientUrl(
        ("a:9876", "[::1]:2"), "n|s-1_", "i 1", False, "ak", "sk", "t&@"
    ),
    "rocketmq://a%3Ak:s:k@e/c;r@a": ClientUrl(
        ("a:9876",), access_key="a:k", secret_key="s:k@e/c;r"
    ),
    "rocketmq://ak:%73%2B+@a": ClientUrl(("a:9876",), access_key="ak", secret_key="s++"),
}


@pytest.mark.parametrize("text", GOOD)
def test_an_address_is_read(text):
    assert parse_url(text) == GOOD[text]


BAD = {
    "": "the address is empty: write host:port",
    "http://h:1": "the address begins with 'http://': write rocketmq://host:port",
    ";": "no name server is given: write host:port",
    "rocketmq://": "no name server is given",
    "rocketmq://?tls=true": "no name server is given",
    "rocketmq://a:b@": "no name server is given",
    "a;;b": "name server 2 is empty",
    "a:": "name server 1 ('a:') has no port from 1 to 65535 behind the ':': write host:port",
    "a:1;b:0": "name server 2 ('b:0') has no port from 1 to 65535",
    "a:65536": "has no port from 1 to 65535",
    "a:-1": "has no port",
    "a:1x": "has no port",
    "a:²": "has no port",
    "a:1:2": "has no port",
    ":1": "name server 1 (':1') has no host",
    "a b:1": "has no host of letters, digits",
    "hé": "has no host",
    "a/b": "has no host",
    "::1": "is an IPv6 address without brackets: write [address]:port",
    "[::1": "is not an IPv6 address: write [address]:port",
    "[1.2.3.4]:1": "is not an IPv6 address",
    "[::1]1": "is not an IPv6 address",
    "[::1]:": "has no port",
    "a:1,b:2": "name server 1 ('a:1,b:2') has a comma: write a ';' between name servers",
    ";".join(f"h{n}" for n in range(65)): "65 name servers are given, at most 64 are allowed",
    "rocketmq://a?tsl=true": "key 'tsl' after the '?' is unknown; did you mean tls?",
    "rocketmq://a?Instance=x": "did you mean instance? (known: namespace, instance,",
    "rocketmq://a?tls": "tls has no value after the '?': write tls=value",
    "rocketmq://a?tls_ca=": "tls_ca= is empty: give a file",
    "rocketmq://a?tls_key=k": "a key of TLS without a certificate: give tls_cert, too",
    "rocketmq://a?tls_ca=c&tls_verify=false": "tls_ca has no effect with tls_verify=false",
    "rocketmq://a?tls=false&tls_ca=c": "tls=false, and more settings of TLS",
    "rocketmq://a?tls=1": "tls='1' is neither true nor false",
    "rocketmq://a?tls=true&tls=true": "tls is given twice",
    "rocketmq://a?retries=3": "key 'retries' after the '?' is unknown (known: ",
    "rocketmq://a?tls=true&&namespace=x": "the key '' after the '?' is unknown",
    "rocketmq://a?namespace=a.b": "namespace='a.b' has an illegal character",
    "rocketmq://a?namespace=a%25b": "namespace='a%b' has an illegal character",
    "rocketmq://a?instance=%20": "instance= is blank",
    "rocketmq://a?instance=%ff": "the instance has percent-encoded bytes that are not UTF-8",
    "rocketmq://a?security_token=x": "security_token without an account",
    "rocketmq://ak:sk@a?security_token=": "security_token= is empty",
}


@pytest.mark.parametrize("text", BAD)
def test_an_address_that_means_nothing_is_refused_with_words(text):
    with pytest.raises(ValueError, match=re.escape(BAD[text])):
        parse_url(text)


SECRET = "hush"
LEAKING = [
    "hush:hush@h:1",
    "ak:hu;hush@h:1",
    "rocketmq://hush@h:1",
    "rocketmq://:hush@h:1",
    "rocketmq://hush:@h:1",
    "rocketmq://ak:hush@h:x",
    "rocketmq://ak:hush@",
    "rocketmq://ak:hush?x@h:1",
    "rocketmq://ak:x?hush@h:1",
    "rocketmq://ak:x?hush=1@h:1",
    "rocketmq://ak:hush%ff@h",
    "rocketmq://ak:sk@h?security_token=x&hush",
    "rocketmq://ak:sk@h?security_token=x&hush=y",
    "rocketmq://ak:sk@h?security_token=hush%ff",
    "rocketmq://ak:sk@h?security_token=hush&security_token=hush",
    "rocketmqs://ak:hush@h",
]


@pytest.mark.parametrize("text", LEAKING)
def test_a_refusal_shows_no_secret(text):
    with pytest.raises(ValueError, match=r".{20}") as caught:
        parse_url(text)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@given(
    access=st.text(min_size=1, max_size=8),
    secret=st.text(min_size=1, max_size=8),
    token=st.text(min_size=1, max_size=8),
)
def test_any_account_can_be_written(access, secret, token):
    assume(all(c < "\ud800" or c > "\udfff" for c in access + secret + token))
    account = f"{quote(access, safe='')}:{quote(secret, safe='')}"
    url = parse_url(f"rocketmq://{account}@h?security_token={quote(token, safe='')}")
    assert url.credentials == Credentials(access, secret, token)
    assert url.name_servers == ("h:9876",)


@given(text=st.text("ab:;@?&=[]%/.,rocketmq10", max_size=20))
def test_any_text_is_read_or_refused(text):
    for each in (text, "rocketmq://" + text):
        try:
            servers = parse_url(each).name_servers
        except ValueError as error:
            kind = type(error)
        else:
            kind = ValueError
            assert parse_name_servers(";".join(servers)) == servers
            assert parse_url("rocketmq://" + ";".join(servers)).name_servers == servers
        assert kind is ValueError, "not one of its subclasses, which speak of something else"


def test_secrets_are_not_shown():
    shown = repr(parse_url("rocketmq://ak:hush@h?security_token=hush"))
    assert "ak" in shown
    assert SECRET not in shown


def test_without_an_account_there_are_no_credentials():
    assert parse_url("h").credentials is None
    assert ClientUrl(("h:1",), access_key="ak").credentials is None
    assert ClientUrl(("h:1",), secret_key="sk").credentials is None
