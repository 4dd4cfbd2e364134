"""Bearer tokens of the sandbox.

Mints and verifies JSON Web Tokens signed with one secret of the running sandbox (HS256), in the format of Kubernetes'
service account tokens, so that clients that decode them find `exp` and `sub`. Nothing is stored: a token is valid until
it expires. Pure (`now` is passed in); used for the Api and the HTTP adapter.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

Json = dict[str, Any]


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Tokens:
    """Tokens of one sandbox; `secret` must be unguessable."""

    def __init__(
        self, secret: bytes, *, now: Callable[[], datetime], issuer: str = "https://kubernetes.default.svc"
    ) -> None:
        self._secret = secret
        self._now = now
        self._issuer = issuer

    def mint(self, namespace: str, name: str, *, life_s: int, bound_to: Json | None = None) -> str:
        """Mint a token of a service account (see subresources.MintToken)."""
        claims: Json = {"namespace": namespace, "serviceaccount": {"name": name}}
        if bound_to:
            claims["pod"] = {"name": bound_to.get("name"), "uid": bound_to.get("uid")}
        return self.mint_for(f"system:serviceaccount:{namespace}:{name}", life_s=life_s, claims=claims)

    def mint_for(self, user: str, *, life_s: int, claims: Json | None = None) -> str:
        """Mint a token of any user."""
        issued = int(self._now().timestamp())
        payload: Json = {"iss": self._issuer, "sub": user, "iat": issued, "nbf": issued, "exp": issued + life_s}
        payload["aud"] = [self._issuer]
        if claims:
            payload["kubernetes.io"] = claims
        head = _encoded(msgspec.json.encode({"alg": "HS256", "typ": "JWT"}))
        signed = f"{head}.{_encoded(msgspec.json.encode(payload))}"
        return f"{signed}.{self._signature(signed)}"

    def user(self, token: str) -> str | None:
        """The user of a token; None when its signature is invalid or it has expired."""
        signed, _, signature = token.rpartition(".")
        if not signed or not hmac.compare_digest(signature.encode(), self._signature(signed).encode()):
            return None
        try:
            payload = msgspec.json.decode(_decoded(signed.partition(".")[2]))
        except (binascii.Error, msgspec.DecodeError, ValueError):
            return None
        return str(payload["sub"]) if payload["exp"] > self._now().timestamp() else None

    def _signature(self, signed: str) -> str:
        return _encoded(hmac.digest(self._secret, signed.encode(), hashlib.sha256))
