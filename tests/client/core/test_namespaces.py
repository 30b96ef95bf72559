"""client/core/namespaces.py against Apache's NamespaceUtil."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.client.core.namespaces import (
    with_namespace,
    without_namespace,
)

from .apache_tables import table

NAMES = st.text("abn|", min_size=1, max_size=5)
PREFIXES = st.sampled_from(["", "%RETRY%", "%DLQ%"])


@pytest.mark.parametrize("row", table("namespaces"), ids=lambda row: row["resource"])
def test_names_are_wrapped_and_unwrapped_as_by_apache(row):
    resource = row["resource"]
    for namespace, wrapped in row["wrapped"].items():
        assert with_namespace(namespace, resource) == wrapped
        assert without_namespace(resource, namespace) == row["without"][namespace]


@given(namespace=NAMES, prefix=PREFIXES, name=NAMES)
def test_unwrapping_undoes_wrapping(namespace, prefix, name):
    resource = prefix + name
    wrapped = with_namespace(namespace, resource)
    assert wrapped == f"{prefix}{namespace}%{name}"
    assert without_namespace(wrapped, namespace) == resource
    assert with_namespace(namespace, wrapped) == wrapped


@pytest.mark.parametrize("namespace", [None, ""])
@pytest.mark.parametrize("resource", ["", "t", "ns%t", "%RETRY%g"])
def test_without_a_namespace_names_stay(namespace, resource):
    assert with_namespace(namespace, resource) == resource
    assert without_namespace(resource, namespace) == resource


def test_an_empty_name_stays_empty():
    assert with_namespace("ns", "") == without_namespace("", "ns") == ""
