"""Access, token and self reviews: kinds that are answered and never stored.

Answers SelfSubjectAccessReview and its relatives, TokenReview and SelfSubjectReview. Authorization is not enforced:
every authenticated user may do everything, and RBAC objects are only stored; the reason in the answer states this.
Pure; `authenticate` maps tokens to users. Called by `routes.py`.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from raytide_sandbox.apiserver.api_status import ApiStatusError, bad_request
from raytide_sandbox.apiserver.builtin_resources import REVIEWS, Review
from raytide_sandbox.apiserver.request_info import decode_body
from raytide_sandbox.apiserver.request_response import Request, Response

Json = dict[str, Any]
Authenticate = Callable[[str], str | None]
"""A bearer token -> the user's name; None for an unknown token."""

_BY_NAME: Final = {(review.group, review.version, review.plural): review for review in REVIEWS}
_REASON: Final = "RBAC is not enforced, every authenticated user is allowed"


def find_review(group: str, version: str, plural: str) -> Review | None:
    """The review served at this group, version and plural, or None."""
    return _BY_NAME.get((group, version, plural))


def answer(review: Review, request: Request, authenticate: Authenticate) -> Response:
    """Answer a POST of a review; 405 for other methods."""
    if request.method != "POST":
        raise ApiStatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    body = decode_body(request)
    if not isinstance(body, dict):
        raise bad_request("the body of the request is not an object")
    body.update(apiVersion=f"{review.group}/{review.version}", kind=review.kind)
    body.setdefault("metadata", {})
    body["status"] = _status(review, request, body, authenticate)
    return Response(201, msgspec.json.encode(body))


def _status(review: Review, request: Request, body: Json, authenticate: Authenticate) -> Json:
    if review.kind == "TokenReview":
        user = authenticate((body.get("spec") or {}).get("token") or "")
        return {"authenticated": False} if user is None else {"authenticated": True, "user": _user(user)}
    if review.kind == "SelfSubjectReview":
        return {"userInfo": _user(request.user)}
    if review.kind == "SelfSubjectRulesReview":
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
        return {"resourceRules": [everything], "nonResourceRules": [paths], "incomplete": False}
    return {"allowed": True, "reason": _REASON}


def _user(name: str) -> Json:
    groups = ["system:authenticated"]
    parts = name.split(":")
    if parts[:2] == ["system", "serviceaccount"]:
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{parts[2]}"]
    return {"username": name, "groups": groups}
