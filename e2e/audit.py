"""The operator's requests in the audit log, and the permissions that they use.

Reads an API server's audit log (audit.k8s.io/v1, one event a line) and the rules that the chart has installed; gives
rights as `verb resource.group`. Rights that a quiet run cannot use are listed here with the reason why they are granted
all the same. Used by the last test of the suite, on a cluster that has such a log.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

UNUSED_BECAUSE = {
    "get pods": "only after a create of unknown outcome",
    "get services": "only after a create of unknown outcome",
    "update rayclusters/finalizers.ray.io": "required by the admission plugin OwnerReferencesPermissionEnforcement only",
    "create leases.coordination.k8s.io": "the chart creates the Lease; used only if a user has deleted it",
    "patch events": "only for a repeated event",
    "patch rayclusters.ray.io": "passed on to autoscalers: a role may grant only what its author has",
    "list events": "only while an autoscaler waits for nodes",
    "get resourcequotas": "only while a quota rejects pods",
    "delete trainingjobs.paddlepaddle.org": "only when the time after the end of a TrainingJob is over",
    "update trainingjobs/finalizers.paddlepaddle.org": "required by the admission plugin OwnerReferencesPermissionEnforcement only",
    "get configmaps": "only after a create of unknown outcome",
}
"""Granted, and not used in a run without faults."""

GRANTED_TO_ALL = {"selfsubjectaccessreviews.authorization.k8s.io"}
"""Requests that every authenticated user may send."""


@dataclass(frozen=True)
class Asked:
    """One request of the log."""

    right: str
    is_denied: bool
    """The authorizer denied it; a quota or a policy rejects later, with the same code 403."""
    uri: str
    at: str = ""
    """When it was received, as the log has it: later is larger."""


def granted(rules: Iterable[Json]) -> set[str]:
    """Rights in rules of roles."""
    return {
        spell(verb, resource, group)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def spell(verb: str, resource: str, group: str) -> str:
    """`patch rayclusters/status.ray.io`, `get pods`."""
    return f"{verb} {resource}.{group}" if group else f"{verb} {resource}"


def requests_of(log: Path, user: str) -> list[Asked]:
    """All requests of this user for objects that got a response."""
    return list(_requests(log, user))


def _requests(log: Path, user: str) -> Iterator[Asked]:
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if user not in line:
                continue
            event = json.loads(line)
            about = event.get("objectRef")
            if event["user"]["username"] != user or not about or event.get("stage") == "RequestReceived":
                continue
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            right = spell(event["verb"], resource, about.get("apiGroup", ""))
            is_denied = (event.get("annotations") or {}).get("authorization.k8s.io/decision") == "forbid"
            yield Asked(right, is_denied, event["requestURI"], event["requestReceivedTimestamp"])


def deleted_at(log: Path, resource: str, name: str) -> str:
    """When a client deleted that object; empty if none did."""
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if '"verb":"delete"' in line and f'"name":"{name}"' in line:
                event = json.loads(line)
                if (event["objectRef"]["resource"], event["objectRef"].get("name")) == (resource, name):
                    moment: str = event["requestReceivedTimestamp"]
                    return moment
    return ""


def forbidden(asked: Iterable[Asked]) -> list[str]:
    """What was rejected for want of a right."""
    return sorted({f"{request.right}: {request.uri}" for request in asked if request.is_denied})


def counted(asked: Iterable[Asked]) -> Counter[str]:
    """How often each right was used."""
    return Counter(request.right for request in asked if request.right.partition(" ")[2] not in GRANTED_TO_ALL)
