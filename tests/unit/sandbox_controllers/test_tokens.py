"""Tokens say who somebody is, and nothing forged gets through."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest

from raytide.sandbox.tokens import Tokens

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def tokens() -> Tokens:
    return Tokens(secret=b"s" * 32, admin="the-admin")


def issue(tokens: Tokens, **options) -> str:
    return tokens.issue(namespace="ns", account="default", account_uid="u1", now=NOW, **options)[0]


def test_the_administrator_is_known(tokens):
    assert tokens.user("the-admin", NOW) == "system:admin"


def test_a_service_accounts_token_names_it_until_it_expires(tokens):
    token, expires = tokens.issue(
        namespace="ns", account="default", account_uid="u1", now=NOW, lifetime=timedelta(hours=2)
    )
    assert expires == NOW + timedelta(hours=2)
    assert tokens.user(token, NOW) == "system:serviceaccount:ns:default"
    assert tokens.user(token, expires - timedelta(seconds=1)) == "system:serviceaccount:ns:default"
    assert tokens.user(token, expires) is None
    assert tokens.user(token, NOW - timedelta(seconds=1)) is None


def test_very_short_lives_are_lengthened_as_a_real_server_does(tokens):
    _, expires = tokens.issue(namespace="n", account="a", account_uid="u", now=NOW, lifetime=timedelta(seconds=1))
    assert expires == NOW + timedelta(minutes=10)


def test_the_claims_are_those_clients_look_for(tokens):
    payload = issue(tokens, pod=("p", "u2")).split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    assert claims["sub"] == "system:serviceaccount:ns:default"
    assert claims["exp"] - claims["iat"] == 3600
    assert claims["kubernetes.io"] == {
        "namespace": "ns",
        "serviceaccount": {"name": "default", "uid": "u1"},
        "pod": {"name": "p", "uid": "u2"},
    }


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda token: "", id="no token"),
        pytest.param(lambda token: "nonsense", id="no JSON Web Token at all"),
        pytest.param(lambda token: token[:-2], id="a shortened signature"),
        pytest.param(lambda token: token.rpartition(".")[0] + ".", id="no signature"),
        pytest.param(lambda token: "x" + token, id="another header"),
        pytest.param(lambda token: token.split(".")[0] + ".e30." + token.split(".")[2], id="another payload"),
        pytest.param(lambda token: "tök€n", id="letters outside ASCII"),
        pytest.param(lambda token: "a.b.c", id="three parts that mean nothing"),
    ],
)
def test_what_we_did_not_issue_is_nobody(tokens, spoil):
    assert tokens.user(spoil(issue(tokens)), NOW) is None


def test_another_sandbox_does_not_know_our_tokens(tokens):
    assert Tokens(secret=b"t" * 32, admin="other").user(issue(tokens), NOW) is None


@pytest.mark.parametrize(
    ("header", "user"),
    [
        pytest.param("Bearer the-admin", "system:admin", id="bearer"),
        pytest.param("bearer the-admin", "system:admin", id="the scheme in any case"),
        pytest.param("Basic the-admin", None, id="another scheme"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_header(tokens, header, user):
    assert tokens.user_of({"authorization": header} if header else {}, NOW) == user
