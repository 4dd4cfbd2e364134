"""What messages of Kubernetes say, by their stable forms: the only place that reads a text.

Takes a message of the API server or of kube-scheduler, alone or within a longer text, and returns the names in it. Texts of
Raytide are never read: they are made from a `Diagnosis`, which has the names as fields. Pure; called by catalogue.py,
api/pod_failure.py and raycluster/quota.py.
"""

import re
from typing import Final

MAX_NAMES: Final = 3
"""Names of one kind that `unschedulable_for` returns."""
_QUOTA: Final = re.compile(r"exceeded quota: ([^,\s]+)")
_REQUESTED: Final = re.compile(r"exceeded quota: [a-z0-9.-]+, requested: (\S+), used: ")
_REJECTED_BY: Final = {
    "user": re.compile(r'User "([^"]+)" cannot '),
    "webhook": re.compile(r'admission webhook "([^"]+)"'),
    "priority class": re.compile(r"no PriorityClass with name (\S+)"),
    "pod security": re.compile(r"violates PodSecurity \"([^\"]+)\""),
    "service account": re.compile(r"service account (\S+) was not found"),
    "service account name": re.compile(r"error looking up service account (\S+):"),
}
_UNSCHEDULABLE_FOR: Final = {
    "resource": re.compile(r"Insufficient ([\w./-]*\w)"),
    "taint": re.compile(r"untolerated taint(?:\(s\))? ?\{([^:}\s]+)"),
    "selector": re.compile(r"(didn't match Pod's node affinity/selector)"),
    "cordon": re.compile(r"node\(s\) (were unschedulable)"),
    "volume": re.compile(r"(unbound immediate PersistentVolumeClaims|persistentvolumeclaim \S+ not found)"),
}
_MISSING: Final = re.compile(r'\b(secret|configmap) "([^"]+)" not found')
_INVALID_FIELD: Final = re.compile(r"([\w.-]+ \"[^\"]*\") is invalid: \[?([^\s:]+): ")
_INVALID: Final = re.compile(r'[\w.-]+ "[^"]*" is invalid: |[\w.-]+ in version "[^"]*" cannot be handled as a ')
"""How the message of the API server begins for 422 Invalid, and for an object that it cannot decode; not that of a webhook."""


def exceeded_quota(message: str) -> str:
    """The ResourceQuota that a create exceeds; empty if the message names none."""
    found = _QUOTA.search(message)
    return found[1] if found else ""


def quota_requests(message: str) -> dict[str, str]:
    """What the create requests from that quota, as quantities by resource; empty if the message does not say it."""
    found = _REQUESTED.search(message)
    pairs = (pair.partition("=") for pair in found[1].split(",")) if found else ()
    return {name: amount for name, _, amount in pairs}


def rejected_by(message: str) -> tuple[str, str]:
    """What rejects a create, as a key of `_REJECTED_BY`, and its name; empty if the message names nothing known."""
    for kind, pattern in _REJECTED_BY.items():
        if found := pattern.search(message):
            return kind, found[1]
    return "", ""


def missing_object(message: str) -> str:
    """The Secret or ConfigMap that a container refers to and that does not exist; empty if the message names none."""
    found = _MISSING.search(message)
    return f"{'Secret' if found[1] == 'secret' else 'ConfigMap'} {found[2]}" if found else ""


def is_invalid(message: str) -> bool:
    """Whether the API server rejects the object for its own fields."""
    return _INVALID.match(message) is not None


def invalid_field(message: str) -> tuple[str, str]:
    """The object that has an invalid field, such as `Pod "a"`, and the field; empty if the message names none."""
    found = _INVALID_FIELD.match(message)
    return (found[1], found[2]) if found else ("", "")


def unschedulable_for(message: str) -> dict[str, list[str]]:
    """What kube-scheduler misses, by a key of `_UNSCHEDULABLE_FOR`: at most MAX_NAMES names each."""
    found = {
        kind: list(dict.fromkeys(pattern.findall(message)))[:MAX_NAMES] for kind, pattern in _UNSCHEDULABLE_FOR.items()
    }
    return {kind: names for kind, names in found.items() if names}
