"""Rules of object metadata for create, update and delete.

Takes the stored object and the requested one and returns the object to store: uid, timestamps, generation, finalizers,
grace periods and the split between spec and status, as a real API server sets them. It stores nothing and reads no
clock. Called by the store for every write.
"""

from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from raytide_sandbox.apiserver.api_status import ApiStatusError, Cause, conflict, forbidden, invalid
from raytide_sandbox.apiserver.builtin_resources import Resource
from raytide_sandbox.rfc3339 import format_time

Json = dict[str, Any]

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_GC_FINALIZERS: Final = {"Foreground": FOREGROUND, "Orphan": ORPHAN}
_PROPAGATIONS: Final = ("Foreground", "Background", "Orphan")
_KEPT: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "name",
    "namespace",
)
_ENDED: Final = ("Succeeded", "Failed")
DEFAULT_GRACE_S: Final = 30


def begin(definition: Resource, obj: Json, *, namespace: str, uid: str, now: datetime) -> None:
    """Set the type, identity and creation time of a new object."""
    metadata = obj["metadata"]
    obj["apiVersion"], obj["kind"] = definition.api_version, definition.kind
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
        metadata.pop(name, None)
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = format_time(now)
    if definition.has_generation:
        metadata["generation"] = 1
    if definition.key == "namespaces":
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}


def merged_update(definition: Resource, old: Json, new: Json, subresource: str | None) -> Json:
    """The object to store when `new` is written over `old`; raises ApiStatusError when its metadata is invalid."""
    sent = new["metadata"]
    name = old["metadata"]["name"]
    if sent.get("uid") and sent["uid"] != old["metadata"]["uid"]:
        raise _uid_changed(definition, old, sent["uid"])
    if subresource is not None:
        new = _restricted(definition, old, new, subresource)
    elif definition.has_status:
        _put(new, "status", old.get("status"))
    new["apiVersion"], new["kind"] = definition.api_version, definition.kind
    metadata = new["metadata"]
    for field in _KEPT:
        _put(metadata, field, old["metadata"].get(field))
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
    added = _added_finalizers(old, new)
    if added and "deletionTimestamp" in metadata:
        why = f"no new finalizers can be added if the object is being deleted, found new finalizers {_go(added)}"
        fault = Cause("metadata.finalizers", f"Forbidden: {why}", "FieldValueForbidden")
        raise invalid(definition.kind, name, [fault, fault], group=definition.group)
    if "generation" in metadata and _desired_state(definition, old) != _desired_state(definition, new):
        metadata["generation"] += 1
    return new


def _restricted(definition: Resource, old: Json, new: Json, subresource: str) -> Json:
    """The object with only the changes that are allowed through `subresource`."""
    restricted = dict(old)
    if subresource == "finalize":
        restricted["spec"] = new.get("spec") or {}
        restricted["metadata"] = dict(new["metadata"])
        return restricted
    if subresource == "binding":
        restricted["spec"] = new["spec"]
    _put(restricted, "status", new.get("status"))
    # The status endpoint of a custom resource takes only status; those of pods and nodes take labels, annotations too.
    metadata = dict(old["metadata"] if definition.is_custom else new["metadata"])
    _put(metadata, "managedFields", new["metadata"].get("managedFields"))
    if not definition.is_custom:
        _put(metadata, "ownerReferences", old["metadata"].get("ownerReferences"))
    restricted["metadata"] = metadata
    return restricted


def _put(target: Json, field: str, value: Any) -> None:
    if value is None:
        target.pop(field, None)
    else:
        target[field] = value


def _go(texts: list[str]) -> str:
    return "[]string{" + ", ".join(f'"{text}"' for text in texts) + "}"


def _added_finalizers(old: Json, new: Json) -> list[str]:
    before = old["metadata"].get("finalizers") or ()
    return [name for name in new["metadata"].get("finalizers") or () if name not in before]


def _desired_state(definition: Resource, obj: Json) -> Any:
    """The part of an object whose changes increment generation."""
    if not definition.is_custom:
        return obj.get("spec")
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _uid_changed(definition: Resource, old: Json, uid: str) -> ApiStatusError:
    fault = Cause("metadata.uid", f'Invalid value: "{uid}": field is immutable')
    return invalid(definition.kind, old["metadata"]["name"], [fault, fault], group=definition.group)


def put_precondition(definition: Resource, old: Json, uid: str | None) -> None:
    """Raise Conflict when the uid of a PUT is not the object's; the uid of a patch is no precondition."""
    metadata = old["metadata"]
    if not uid or uid == metadata["uid"]:
        return
    folder = "services/specs" if definition.key == "services" else definition.plural
    if definition.group:
        folder = f"{definition.group}/{definition.plural}"
    key = "/".join(part for part in ("/registry", folder, metadata.get("namespace"), metadata["name"]) if part)
    why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
    text = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    raise conflict(definition.group_resource, metadata["name"], text)


def is_same(old: Json, new: Json) -> bool:
    """True when a write changes nothing; the times in managedFields do not count."""
    if old == new:
        return True
    if {**old, "metadata": None} != {**new, "metadata": None}:
        return False
    before, after = dict(old["metadata"]), dict(new["metadata"])
    owned_before, owned_after = before.pop("managedFields", None), after.pop("managedFields", None)
    return before == after and _owners(owned_before) == _owners(owned_after)


def _owners(managed: list[Json] | None) -> list[Json]:
    return [{key: value for key, value in entry.items() if key != "time"} for entry in managed or ()]


def is_finished(definition: Resource, obj: Json) -> bool:
    """True when a terminating object may be removed: no finalizers and no grace period remain."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if definition.key == "namespaces":
        return not (obj.get("spec") or {}).get("finalizers")
    return not (definition.key == "pods" and metadata.get("deletionGracePeriodSeconds"))


def check_preconditions(
    definition: Resource, name: str, *, uid: str, version: str, wanted_uid: str | None, wanted_version: str | None
) -> None:
    """Raise Conflict when a delete's uid or resourceVersion precondition does not hold."""
    kind = f"{definition.kind}.{definition.group}" if definition.group else definition.kind
    if wanted_uid is not None and wanted_uid != uid:
        text = f"the UID in the precondition ({wanted_uid}) does not match the UID in record ({uid})"
        raise conflict(kind, name, f"{text}. The object might have been deleted and then recreated")
    if wanted_version is not None and wanted_version != version:
        text = (
            f"the ResourceVersion in the precondition ({wanted_version}) does not match the ResourceVersion in record"
        )
        raise conflict(kind, name, f"{text} ({version}). The object might have been modified")


class Marking(NamedTuple):
    """What a delete did: whether the object must be stored again, and whether it stays for now."""

    is_changed: bool
    is_waiting: bool


def mark(definition: Resource, obj: Json, *, grace_s: int | None, propagation: str | None, now: datetime) -> Marking:
    """Mark `obj` as terminating as far as needed."""
    if propagation is not None and propagation not in _PROPAGATIONS:
        known = ", ".join(f'"{policy}"' for policy in (*_PROPAGATIONS, "nil"))
        text = f'Unsupported value: "{propagation}": supported values: {known}'
        fault = Cause("propagationPolicy", text, "FieldValueNotSupported")
        raise invalid("DeleteOptions", "", [fault], group="meta.k8s.io")
    metadata = obj["metadata"]
    was_terminating = "deletionTimestamp" in metadata
    is_changed = False if was_terminating else _mark_propagation(metadata, propagation)
    grace = _grace_s(definition, obj, grace_s)
    pending = bool(metadata.get("finalizers"))
    if definition.key == "namespaces" and (obj.get("spec") or {}).get("finalizers"):
        pending = True
        obj.setdefault("status", {})["phase"] = "Terminating"
    is_bound = definition.key == "pods" and bool(obj["spec"].get("nodeName"))
    if not was_terminating:
        if not (pending or grace or is_bound):
            return Marking(is_changed=is_changed, is_waiting=False)
        metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata:
            metadata["generation"] += 1
        return Marking(is_changed=True, is_waiting=pending or grace > 0)
    left = metadata.get("deletionGracePeriodSeconds") or 0
    if grace < left:
        metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = left = grace
        is_changed = True
    return Marking(is_changed=is_changed, is_waiting=pending or left > 0)


def _mark_propagation(metadata: Json, propagation: str | None) -> bool:
    """Set the finalizer for the garbage collector; true when the finalizers changed."""
    if propagation is None:
        return False
    before = metadata.get("finalizers") or []
    after = [name for name in before if name not in (FOREGROUND, ORPHAN)]
    if propagation in _GC_FINALIZERS:
        after.append(_GC_FINALIZERS[propagation])
    _put(metadata, "finalizers", after or None)
    return after != before


def _grace_s(definition: Resource, obj: Json, asked_s: int | None) -> int:
    """The grace period in seconds; only pods that are bound and have not ended have one."""
    if definition.key != "pods":
        return 0
    if not obj["spec"].get("nodeName") or (obj.get("status") or {}).get("phase") in _ENDED:
        return 0
    if asked_s is None:
        asked_s = obj["spec"].get("terminationGracePeriodSeconds")
        asked_s = DEFAULT_GRACE_S if asked_s is None else asked_s
    return 1 if asked_s < 0 else asked_s


def namespace_terminating(definition: Resource, name: str, namespace: str) -> ApiStatusError:
    """403 for new content in a namespace that is being deleted."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    return forbidden(definition.group_resource, name, why, causes=[cause])
