"""Credentials are read from the places that Ray uses, read again when they change, and never logged."""

import os
from pathlib import Path

import pytest

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.autoscaler.gcs.credentials import SERVICE_ACCOUNT_TOKENS, Certificates, GcsAccess, Token, gcs_access

USERS = Path("/home/ray/.ray/auth_token")


@pytest.mark.parametrize(
    ("environ", "access"),
    [
        pytest.param({}, GcsAccess(token_files=(Path("/.ray/auth_token"),)), id="defaults"),
        pytest.param(
            {"HOME": "/home/ray", "RAY_AUTH_MODE": "disabled"}, GcsAccess(token_files=(USERS,)), id="disabled is off"
        ),
        pytest.param(
            {"HOME": "/home/ray", "RAY_AUTH_MODE": "Token"},
            GcsAccess(is_token_wanted=True, token_files=(USERS,)),
            id="the user's file counts when nothing else is named",
        ),
        pytest.param(
            {"HOME": "/home/ray", "RAY_AUTH_MODE": "token", "RAY_ENABLE_K8S_TOKEN_AUTH": "true"},
            GcsAccess(is_token_wanted=True, token_files=(*SERVICE_ACCOUNT_TOKENS, USERS)),
            id="where Kubernetes checks tokens, the service account's comes first",
        ),
        pytest.param(
            {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/t", "RAY_ENABLE_K8S_TOKEN_AUTH": "1"},
            GcsAccess(is_token_wanted=True, token_files=(Path("/t"),)),
            id="a file that is named is the only one",
        ),
        pytest.param(
            {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": " secret\n", "RAY_AUTH_TOKEN_PATH": "/t"},
            GcsAccess(is_token_wanted=True, token="secret", token_files=(Path("/t"),)),
            id="a token in the environment is trimmed",
        ),
        pytest.param(
            {
                "RAY_USE_TLS": "1",
                "RAY_TLS_SERVER_CERT": "/c",
                "RAY_TLS_SERVER_KEY": "/k",
                "RAY_TLS_CA_CERT": "/a",
                "RAY_AUTH_TOKEN_PATH": "/t",
            },
            GcsAccess(
                token_files=(Path("/t"),),
                is_tls_wanted=True,
                certificate=Path("/c"),
                private_key=Path("/k"),
                ca_file=Path("/a"),
            ),
            id="TLS is mutual",
        ),
        pytest.param(
            {"RAY_USE_TLS": "0", "RAY_AUTH_TOKEN_PATH": "/t"}, GcsAccess(token_files=(Path("/t"),)), id="TLS off"
        ),
    ],
)
def test_the_environment_is_read_as_ray_reads_it(environ: dict[str, str], access: GcsAccess) -> None:
    assert gcs_access(environ) == access


def token_of(**environ: str) -> Token:
    return Token(gcs_access({"RAY_AUTH_MODE": "token", **environ}))


def test_no_token_is_read_unless_token_authentication_is_enabled() -> None:
    token = Token(gcs_access({"RAY_AUTH_TOKEN": "secret"}))
    assert (token.read(), token.source) == ("", "")


def test_a_token_in_the_environment_takes_precedence_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("of the file")
    token = token_of(RAY_AUTH_TOKEN="of-the-environment", RAY_AUTH_TOKEN_PATH=str(tmp_path / "t"))
    assert (token.read(), token.source) == ("of-the-environment", "RAY_AUTH_TOKEN")


def test_the_first_line_of_a_file_is_the_token_and_a_rotated_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("  first \nsomething else\n")
    token = token_of(RAY_AUTH_TOKEN_PATH=str(path))
    assert token.read() == "first"
    (tmp_path / "next").write_text("second")
    (tmp_path / "next").rename(path)  # as Kubernetes does it: another file in its place
    assert token.read() == "second"


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("first")
    token = token_of(RAY_AUTH_TOKEN_PATH=str(path))
    token.read()
    before = path.stat()
    path.write_text("other")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert token.read() == "first"


def test_the_second_source_counts_when_the_first_is_not_there(tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("the user's")
    token = token_of(HOME=str(tmp_path), RAY_ENABLE_K8S_TOKEN_AUTH="true")
    assert token.read() == "the user's"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "the token is missing", id="no file"),
        pytest.param("\nx", "the token is missing", id="an empty first line"),
        pytest.param("gehe\x00im", "the token has characters that are not printable ASCII", id="a control character"),
        pytest.param(
            "schlüssel", "the token has characters that are not printable ASCII", id="a letter that gRPC cannot carry"
        ),
    ],
)
def test_an_unusable_token_file_is_an_error_with_its_path(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "t"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ApiStatusError, match=message) as caught:
        token_of(RAY_AUTH_TOKEN_PATH=str(path)).read()
    assert caught.value.status == 401
    assert str(path) in caught.value.message
    assert not content or content not in caught.value.message


def test_no_secret_is_in_a_repr() -> None:
    assert "geheim" not in repr(gcs_access({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "geheim"}))


# --- certificates ---


def test_without_tls_no_certificate_is_read() -> None:
    assert Certificates(GcsAccess(certificate=Path("/nowhere"))).read() == ()


def tls(tmp_path: Path) -> GcsAccess:
    for name in ("c", "k", "a"):
        (tmp_path / name).write_text(name)
    return GcsAccess(is_tls_wanted=True, certificate=tmp_path / "c", private_key=tmp_path / "k", ca_file=tmp_path / "a")


def test_authority_key_and_certificate_are_read_and_read_again_when_they_change(tmp_path: Path) -> None:
    certificates = Certificates(tls(tmp_path))
    assert certificates.read() == (b"a", b"k", b"c")
    (tmp_path / "c").write_text("newer")
    assert certificates.read() == (b"a", b"k", b"newer")


def test_a_missing_certificate_may_still_come(tmp_path: Path) -> None:
    certificates = Certificates(tls(tmp_path))
    (tmp_path / "k").unlink()
    with pytest.raises(ApiUnavailableError, match="the file in RAY_TLS_SERVER_KEY is empty or cannot be read"):
        certificates.read()
    (tmp_path / "k").write_text("there")
    assert certificates.read() == (b"a", b"there", b"c")


def test_tls_without_all_three_names_is_rejected() -> None:
    with pytest.raises(ApiStatusError, match="RAY_TLS_SERVER_KEY is not"):
        Certificates(GcsAccess(is_tls_wanted=True, certificate=Path("/c"), ca_file=Path(__file__))).read()
