"""May I? Who am I?

Answers the kinds that are asked and never stored: access reviews (in the sandbox everybody who is known may do
everything; RBAC objects are stored but not enforced, and this answer says so), token reviews and self reviews. Pure;
`authenticate` decides which token is whose. Called by `routes.py`.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from raytide.sandbox.apiserver.calls import decode_body
from raytide.sandbox.apiserver.kinds import REVIEWS, Review
from raytide.sandbox.apiserver.messages import Request, Response
from raytide.sandbox.apiserver.status import ApiStatus, bad_request

Json = dict[str, Any]
Authenticate = Callable[[str], str | None]
"""A bearer token -> the user's name; None for a token nobody gave out."""

_BY_NAME: Final = {(review.group, review.version, review.plural): review for review in REVIEWS}
_REASON: Final = "the sandbox allows everything to everybody it knows"


def find_review(group: str, version: str, plural: str) -> Review | None:
    """The review served under this name."""
    return _BY_NAME.get((group, version, plural))


def answer(review: Review, request: Request, authenticate: Authenticate) -> Response:
    """POST of a review."""
    if request.method != "POST":
        raise ApiStatus(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
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
