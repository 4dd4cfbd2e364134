"""Kubeconfigs with static credentials mean what the official client makes of them; all others are left to it."""

import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from kubernetes.aio.config import load_kube_config

from raytide.kube.static_kubeconfig import StaticConfig, read_static

pytestmark = pytest.mark.rule("D29")

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n"
ENCODED = b64encode(CERTIFICATE).decode()
EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}


def document(*, cluster=None, user=None, context=None, **more):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example.org:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        "current-context": "x",
        **more,
    }


def file_with(tmp_path, content):
    path = tmp_path / "kubeconfig"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def content_of(pem):
    return pem if isinstance(pem, bytes) else Path(pem).read_bytes() if pem else None


async def official(path, context=None):
    """What the official client makes of it."""
    found = SimpleNamespace(
        ssl_ca_cert=None, cert_file=None, key_file=None, verify_ssl=True, tls_server_name=None, proxy=None
    )
    found.api_key = {}
    loaded = await load_kube_config(str(path), context=context, client_configuration=found, persist_config=False)
    found.namespace = loaded.current_context["context"].get("namespace") or ""
    return found


STATIC = [
    pytest.param(document(), id="no credentials"),
    pytest.param(document(user={"token": "secret"}), id="a token"),
    pytest.param(document(cluster={"server": "https://api.example.org/path/"}), id="a path"),
    pytest.param(document(cluster={"certificate-authority-data": ENCODED}), id="an authority"),
    pytest.param(document(cluster={"certificate-authority": "ca.crt"}), id="an authority's file"),
    pytest.param(
        document(cluster={"certificate-authority": "ca.crt", "certificate-authority-data": ENCODED}),
        id="both: the data",
    ),
    pytest.param(
        document(user={"client-certificate-data": ENCODED, "client-key-data": ENCODED}), id="a client certificate"
    ),
    pytest.param(document(user={"client-certificate": "ca.crt", "client-key": "ca.crt"}), id="its files"),
    pytest.param(document(cluster={"insecure-skip-tls-verify": True}), id="no verification"),
    pytest.param(document(cluster={"tls-server-name": "other.example"}), id="another name"),
    pytest.param(document(cluster={"proxy-url": "http://p:1"}), id="a proxy"),
    pytest.param(document(context={"namespace": "team"}), id="a namespace"),
    pytest.param(document(context={"extensions": [{"name": "e", "extension": {}}]}, preferences={}), id="extensions"),
]


@pytest.mark.parametrize("content", STATIC)
async def test_static_credentials_are_read_as_the_official_client_reads_them(tmp_path, content):
    (tmp_path / "ca.crt").write_bytes(CERTIFICATE + b"file\n")
    path = file_with(tmp_path, content)
    ours, theirs = read_static(str(path), None), await official(path)
    assert ours is not None
    assert (ours.server, ours.namespace) == (theirs.host.rstrip("/"), theirs.namespace)
    assert (f"Bearer {ours.token}" if ours.token else None) == theirs.api_key.get("BearerToken")
    pems = [(ours.ca, theirs.ssl_ca_cert), (ours.certificate, theirs.cert_file), (ours.private_key, theirs.key_file)]
    for our_pem, their_pem in pems:
        assert content_of(our_pem) == content_of(their_pem)
    assert ours.is_verified == theirs.verify_ssl
    assert (ours.tls_server_name or None, ours.proxy or None) == (theirs.tls_server_name, theirs.proxy)


async def test_another_context_may_be_chosen(tmp_path):
    content = document()
    content["contexts"].append({"name": "y", "context": {"cluster": "c", "user": "u", "namespace": "n"}})
    path = file_with(tmp_path, content)
    assert read_static(str(path), "y").namespace == (await official(path, "y")).namespace == "n"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(document(user={"exec": EXEC}), id="an exec plugin"),
        pytest.param(document(user={"auth-provider": {"name": "gcp"}}), id="an auth provider"),
        pytest.param(document(user={"username": "u", "password": "p"}), id="a password"),
        pytest.param(document(user={"tokenFile": "/token"}), id="a token file"),
        pytest.param(document(user={"token": "t", "as": "admin"}), id="impersonation"),
        pytest.param(document(cluster={"disable-compression": True}), id="a field that is not listed"),
        pytest.param(document(cluster={"server": 5}), id="a number as server"),
        pytest.param(document(cluster={"server": ""}), id="no server"),
        pytest.param(document(cluster={"certificate-authority-data": "no base64!"}), id="no base64"),
        pytest.param(document(cluster={"insecure-skip-tls-verify": "yes"}), id="a text as flag"),
        pytest.param(document(user={"token": 5}), id="a number as token"),
        pytest.param(document(context={"cluster": "other"}), id="an unknown cluster"),
        pytest.param({**document(), "current-context": ""}, id="no current context"),
        pytest.param({**document(), "users": document()["users"] * 2}, id="a name twice"),
        pytest.param({**document(), "clusters": {"c": {}}}, id="no list"),
        pytest.param("[]", id="a list"),
        pytest.param("{{{", id="not YAML"),
        pytest.param("", id="empty"),
    ],
)
def test_everything_else_is_left_to_the_official_client(tmp_path, content):
    assert read_static(str(file_with(tmp_path, content)), None) is None


def test_several_files_are_left_to_it(tmp_path):
    path = str(file_with(tmp_path, document()))
    assert read_static(f"{path}:{path}", None) is None
    assert read_static(f":{path}:", None) is not None


def test_a_file_that_is_not_there_is_left_to_it(tmp_path):
    assert read_static(str(tmp_path / "missing"), None) is None


def test_the_official_client_is_not_imported(tmp_path):
    program = (
        "import sys; from raytide.kube.static_kubeconfig import read_static\n"
        "print(read_static(sys.argv[1], None) is not None, 'kubernetes' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(file_with(tmp_path, document()))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["True", "False"]


def test_no_secret_is_shown_in_errors(tmp_path):
    assert "secret" not in repr(StaticConfig("https://x", token="secret", private_key=b"secret"))
