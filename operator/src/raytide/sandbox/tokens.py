"""Who sent this request?

Issues and reads bearer tokens: one for the administrator, and JSON Web Tokens for service accounts with the claims a
real API server puts in, signed with a secret that lives as long as the sandbox. Takes the time as an argument and
answers with a user's name, or None for a token that is unknown, forged, expired or no token at all. Asked by the
sandbox's server for every request; it decides who somebody is, never what they may do.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

ADMIN: Final = "system:admin"
ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
DEFAULT_LIFETIME: Final = timedelta(hours=1)
SHORTEST_LIFETIME: Final = timedelta(minutes=10)
_HEADER: Final = {"alg": "HS256", "typ": "JWT"}


class Tokens:
    """The tokens of one sandbox; `secret` signs, `admin` is the administrator's."""

    def __init__(self, *, secret: bytes, admin: str) -> None:
        self._secret = secret
        self.admin = admin

    def issue(
        self,
        *,
        namespace: str,
        account: str,
        account_uid: str,
        now: datetime,
        lifetime: timedelta = DEFAULT_LIFETIME,
        audiences: tuple[str, ...] = (ISSUER,),
        pod: tuple[str, str] | None = None,
    ) -> tuple[str, datetime]:
        """A service account's token and when it expires; `pod` is the name and uid of the pod it is for."""
        issued = int(now.timestamp())
        expires = issued + int(max(lifetime, SHORTEST_LIFETIME).total_seconds())
        identity: dict[str, Any] = {"namespace": namespace, "serviceaccount": {"name": account, "uid": account_uid}}
        if pod is not None:
            identity["pod"] = {"name": pod[0], "uid": pod[1]}
        claims = {
            "aud": list(audiences),
            "exp": expires,
            "iat": issued,
            "nbf": issued,
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "kubernetes.io": identity,
        }
        signed = f"{_encode(msgspec.json.encode(_HEADER))}.{_encode(msgspec.json.encode(claims))}"
        return f"{signed}.{_encode(self._sign(signed))}", datetime.fromtimestamp(expires, UTC)

    def user_of(self, headers: Mapping[str, str], now: datetime) -> str | None:
        """The user of a request by its Authorization header; header names are lower-case or case-insensitive."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        return self.user(token.strip(), now) if kind.lower() == "bearer" else None

    def user(self, token: str, now: datetime) -> str | None:
        """The user whose token this is."""
        if hmac.compare_digest(token.encode(), self.admin.encode()):
            return ADMIN
        claims = self._claims(token)
        if claims is None or not claims["nbf"] <= now.timestamp() < claims["exp"]:
            return None
        subject: str = claims["sub"]
        return subject

    def _claims(self, token: str) -> dict[str, Any] | None:
        signed, _, signature = token.rpartition(".")
        try:
            if not hmac.compare_digest(_decode(signature), self._sign(signed)):
                return None
            claims: dict[str, Any] = msgspec.json.decode(_decode(signed.partition(".")[2]))
        except (ValueError, binascii.Error, msgspec.DecodeError):
            return None
        return claims

    def _sign(self, text: str) -> bytes:
        return hmac.digest(self._secret, text.encode(), hashlib.sha256)


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
