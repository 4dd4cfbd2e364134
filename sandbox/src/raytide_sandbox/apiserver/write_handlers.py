"""Handlers of POST, PUT, PATCH and DELETE.

`Writer` takes a `Call` through the steps of a real server: decode, patch, default, prune, validate, record managed
fields, store. Every error is an ApiStatusError and leaves the store unchanged. Addresses, node ports and name suffixes come
from counters and `new_suffix`. Called by `routes.py`; scale comes through `subresources.py`.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from raytide_sandbox.apiserver import defaulting, eventfaults, managed_fields, patching, read_handlers, validation
from raytide_sandbox.apiserver.api_status import Cause, bad_request, forbidden, invalid, success
from raytide_sandbox.apiserver.builtin_resources import CRDS
from raytide_sandbox.apiserver.object_meta import put_precondition
from raytide_sandbox.apiserver.registry import complete_definition
from raytide_sandbox.apiserver.request_info import Call, decode_body, is_apply
from raytide_sandbox.apiserver.request_response import Response
from raytide_sandbox.apiserver.store import Entry, ObjectKey, Store
from raytide_sandbox.rfc3339 import format_time

Json = dict[str, Any]
encode = msgspec.json.encode

_SUFFIX_LENGTH: Final = 5
_LONGEST_GENERATED: Final = 63
_MADE_BY_PUT: Final = {"leases.coordination.k8s.io"}
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_STRATEGIC: Final = "application/strategic-merge-patch+json"


class Writer:
    """Writes of any kind into one store."""

    def __init__(self, store: Store, *, new_suffix: Callable[[], str]) -> None:
        self._store = store
        self._new_suffix = new_suffix
        self._addresses = 0
        self._node_ports = 30000

    # --- create ------------------------------------------------------------------------------------------------------
    def create(self, call: Call) -> Response:
        """Answer a POST to a collection."""
        return self._created(call, call.body())

    def _created(self, call: Call, obj: Json) -> Response:
        self._check_type(call, obj)
        self._name(call, obj)
        if obj["metadata"].get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        if call.served.to_stored is not None:
            call.served.to_stored(obj)
        if call.served.resource.has_status:
            obj.pop("status", None)
        unknown = self._complete(call, obj, None, is_status=False)
        if not is_apply(_content_type(call)):  # before admission, whose fields have no manager
            managed_fields.record_update(None, obj, self.author(call), call.served.fields)
        self._admit(call, obj)
        self._reject_invalid(call, obj, None)
        entry = self._store.create(call.key, obj, is_dry_run=call.is_dry_run)
        return self.answer(call, 201, entry, unknown)

    def _check_type(self, call: Call, obj: Json) -> None:
        """Check that body and URL agree on kind, version and namespace."""
        resource, target = call.served.resource, call.target
        given, kind = obj.get("apiVersion"), obj.get("kind")
        if given and given != resource.api_version:
            expected = f"the expected API version ({resource.api_version})"
            raise bad_request(f"the API version in the data ({given}) does not match {expected}")
        if kind and kind != resource.kind:
            raise bad_request(f"the kind in the data ({kind}) does not match the expected kind ({resource.kind})")
        metadata = obj.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise bad_request("metadata is not an object")
        if not resource.is_namespaced:
            return
        if not target.namespace:
            raise bad_request("an empty namespace may not be set during creation")
        if metadata.get("namespace") and metadata["namespace"] != target.namespace:
            text = "the namespace of the provided object does not match the namespace sent on the request"
            raise bad_request(text)
        metadata["namespace"] = target.namespace

    def _name(self, call: Call, obj: Json) -> None:
        metadata, resource = obj["metadata"], call.served.resource
        if call.target.name:
            metadata.setdefault("name", call.target.name)
        if metadata.get("name"):
            return
        prefix = metadata.get("generateName")
        if not prefix:
            fault = validation.required("metadata.name", "name or generateName is required")
            raise invalid(resource.kind, "", [fault], group=resource.group)
        prefix = prefix[: _LONGEST_GENERATED - _SUFFIX_LENGTH]
        metadata["name"] = prefix + self._new_suffix()
        while self._store.find(call.key, call.target.namespace, metadata["name"]) is not None:
            metadata["name"] = prefix + self._new_suffix()

    def _admit(self, call: Call, obj: Json) -> None:
        """Apply a real server's admission and allocators to a new object."""
        if call.key == "pods":
            self._admit_pod(obj)
        elif call.key == "services":
            defaulting.assign_addresses(
                obj.setdefault("spec", {}), new_address=self._new_address, new_node_port=self._new_node_port
            )
            obj["status"] = {"loadBalancer": {}}
        elif call.key == "persistentvolumeclaims":
            obj["status"] = {"phase": "Pending"}

    def _admit_pod(self, pod: Json) -> None:
        namespace, spec = pod["metadata"]["namespace"], pod.setdefault("spec", {})
        name = spec.get("serviceAccountName") or "default"
        account = self._store.find("serviceaccounts", namespace, name)
        if account is None and name != "default":
            why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
            raise forbidden("pods", pod["metadata"]["name"], why)
        self._admit_priority(pod)
        defaulting.admit_pod(pod, suffix=self._new_suffix(), account=account.obj() if account else None)

    def _admit_priority(self, pod: Json) -> None:
        name = pod["spec"].get("priorityClassName")
        if not name:
            return
        found = self._store.find("priorityclasses.scheduling.k8s.io", "", name)
        if found is None and name not in _SYSTEM_PRIORITIES:
            raise forbidden("pods", pod["metadata"]["name"], f"no PriorityClass with name {name} was found")
        pod["spec"]["priority"] = found.obj()["value"] if found is not None else _SYSTEM_PRIORITIES[name]

    def _new_address(self) -> str:
        self._addresses += 1
        return f"10.96.{self._addresses // 254 % 256}.{self._addresses % 254 + 1}"

    def _new_node_port(self) -> int:
        self._node_ports += 1
        return self._node_ports

    # --- steps of every write ------------------------------------------------------------------------------------
    def author(self, call: Call) -> managed_fields.Author:
        """The manager of this write, for managedFields."""
        subresource = call.target.subresource if call.target.subresource in {"status", "scale"} else ""
        api_version = call.served.resource.api_version
        return managed_fields.Author(call.manager, api_version, subresource, format_time(self._store.now()))

    def _complete(self, call: Call, obj: Json, old: Json | None, *, is_status: bool) -> list[str]:
        """Prune and default; returns the unknown fields if the client asked for warnings."""
        structural = call.served.structural
        unknown: list[str] = []
        if structural is not None:
            unknown = structural.prune(obj)
            structural.default(obj)
        elif not is_status:
            defaulting.complete(call.served.resource, obj)
        if call.key == CRDS and not is_status and not (old or {}).get("metadata", {}).get("deletionTimestamp"):
            complete_definition(obj, format_time(self._store.now()))
            if old is not None and "status" in old:
                obj["status"] = {**old["status"], "acceptedNames": obj["status"]["acceptedNames"]}
        field_validation = call.request.query.get("fieldValidation") or "Warn"
        if unknown and field_validation == "Strict":
            self._reject_unknown_fields(call, obj, unknown)
        return unknown if field_validation == "Warn" else []

    def _reject_unknown_fields(self, call: Call, obj: Json, unknown: list[str]) -> None:
        resource = call.served.resource
        fault = "strict decoding error: " + ", ".join(f'unknown field "{path}"' for path in unknown)
        if call.request.method == "PATCH" and not is_apply(_content_type(call)):
            shown = call.request.body.decode(errors="replace")
            cause = Cause("patch", f"Invalid value: {encode(shown).decode()}: {fault}")
            raise invalid(resource.kind, obj["metadata"]["name"], [cause], group=resource.group)
        kind = resource.kind
        raise bad_request(f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {fault}')

    def _reject_invalid(self, call: Call, obj: Json, old: Json | None, *, is_status: bool = False) -> None:
        resource, structural = call.served.resource, call.served.structural
        faults = validation.metadata_faults(resource, obj)
        if structural is not None:
            found = structural.violations(obj, old, is_status=is_status)
            faults += [Cause(fault.path or "<nil>", fault.message, fault.reason) for fault in found]
        elif not is_status:
            faults += validation.object_faults(resource, obj)
            if old is not None:
                faults += validation.update_faults(resource, old, obj)
            if resource.storage_key and resource.group:
                faults += eventfaults.faults(obj, old)
        if faults:
            group = "" if resource.storage_key else resource.group
            raise invalid(resource.kind, obj["metadata"]["name"], faults, group=group)

    def answer(self, call: Call, code: int, entry: Entry, unknown: list[str] | None = None) -> Response:
        """Answer with the written object in the form the client wants, and warnings for unknown fields."""
        view = call.view()
        headers = read_handlers.headers_of(view)
        warnings = [headers["warning"]] if "warning" in headers else []
        warnings += [f'299 - "unknown field \\"{path}\\""' for path in unknown or ()]
        if warnings:
            headers["warning"] = ", ".join(warnings)
        return Response(code, view.body(entry, self._store.now()), headers)

    # --- update ------------------------------------------------------------------------------------------------------
    def replace(self, call: Call) -> Response:
        """Answer a PUT; creates a missing Lease."""
        obj = call.body()
        self._check_type(call, obj)
        name = obj["metadata"].setdefault("name", call.target.name)
        if name != call.target.name:
            text = f"the name of the object ({name}) does not match the name on the URL ({call.target.name})"
            raise bad_request(text)
        resource, sent = call.served.resource, obj["metadata"]
        if resource.key in _MADE_BY_PUT and self._store.find(call.key, call.target.namespace, name) is None:
            return self._created(call, obj)
        old = self._store.get(call.key, call.target.namespace, name)
        put_precondition(resource, old, sent.get("uid"))
        if not sent.get("resourceVersion") and (resource.is_custom or resource.key in _MADE_BY_PUT):
            fault = Cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise invalid(resource.plural, name, [fault], group=resource.group)
        if call.served.to_stored is not None:
            call.served.to_stored(obj)
        return self._updated(call, old, obj)

    def _updated(self, call: Call, old: Json, new: Json) -> Response:
        entry, unknown = self.write(call, old, new)
        return self.answer(call, 200, entry, unknown)

    def write(self, call: Call, old: Json, new: Json) -> tuple[Entry, list[str]]:
        """Default, prune, validate and store `new` over `old`; returns the entry and the unknown fields."""
        subresource = call.target.subresource
        is_status = subresource == "status"
        new = _within_subresource(call, old, new)
        unknown = self._complete(call, new, old, is_status=is_status)
        _keep_identity(old, new)
        self._reject_invalid(call, new, old, is_status=is_status)
        if not is_apply(_content_type(call)):
            managed_fields.record_update(old, new, self.author(call), call.served.fields)
        stored_as = subresource if subresource in {"status", "finalize"} else None
        entry = self._store.update(call.key, new, subresource=stored_as, is_dry_run=call.is_dry_run)
        return entry, unknown

    # --- patch -------------------------------------------------------------------------------------------------------
    def patch(self, call: Call) -> Response:
        """Answer a PATCH of any of the four types."""
        if is_apply(_content_type(call)):
            return self._apply(call)
        stored = self._store.entry(call.key, call.target.namespace, call.target.name)
        patched = self.patched(call, call.view().obj(stored))
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise bad_request("the patched object has no metadata")
        if patched["metadata"].get("name") != call.target.name:
            named = patched["metadata"].get("name")
            raise bad_request(
                f"the name of the object ({named}) does not match the name on the URL ({call.target.name})"
            )
        if call.served.to_stored is not None:
            call.served.to_stored(patched)
        return self._updated(call, stored.obj(), patched)

    def patched(self, call: Call, obj: Json) -> Any:
        """`obj` after the patch in the call's body; 415 for a type that this kind does not support."""
        content_type = _content_type(call)
        is_custom = call.served.resource.is_custom and call.target.subresource != "scale"
        if content_type == "application/merge-patch+json":
            return patching.merge_patch(obj, call.body())
        if content_type == "application/json-patch+json":
            return patching.json_patch(obj, decode_body(call.request))
        if content_type == _STRATEGIC and not is_custom:
            return patching.strategic_merge(obj, call.body(), call.served.fields)
        raise patching.unsupported_patch(is_custom=is_custom)

    def _apply(self, call: Call) -> Response:
        if not call.request.query.get("fieldManager"):
            raise bad_request("fieldManager is required for apply patch")
        applied = call.body()
        for field, wanted in (("apiVersion", call.served.resource.api_version), ("kind", call.served.resource.kind)):
            if applied.get(field) != wanted:
                raise bad_request(f"invalid object type: {field} must be {wanted}")
        if call.served.to_stored is not None:
            call.served.to_stored(applied)
        metadata = applied.setdefault("metadata", {})
        if metadata.setdefault("name", call.target.name) != call.target.name:
            raise bad_request("the name of the object does not match the name on the URL")
        if call.served.resource.is_namespaced:
            metadata.setdefault("namespace", call.target.namespace)
        entry = self._store.find(call.key, call.target.namespace, call.target.name)
        if entry is None and call.target.subresource:
            self._store.entry(call.key, call.target.namespace, call.target.name)
        old = None if entry is None else entry.obj()
        unknown = self._reject_unknown_applied_fields(call, applied)
        new = managed_fields.apply(
            None if entry is None else entry.obj(),
            applied,
            self.author(call),
            call.served.fields,
            is_forced=call.flag("force"),
        )
        response = self._created(call, new) if old is None else self._updated(call, old, new)
        if unknown and "warning" not in response.headers:
            warnings = ", ".join(f'299 - "unknown field \\"{path}\\""' for path in unknown)
            return Response(response.status, response.body, {**response.headers, "warning": warnings})
        return response

    def _reject_unknown_applied_fields(self, call: Call, applied: Json) -> list[str]:
        """Remove unknown fields before they get a manager; returns them if the client asked for warnings."""
        structural = call.served.structural
        if structural is None:
            return []
        unknown = structural.prune(applied)
        field_validation = call.request.query.get("fieldValidation") or "Warn"
        if unknown and field_validation == "Strict":
            self._reject_unknown_fields(call, applied, unknown)
        return unknown if field_validation == "Warn" else []

    # --- delete ------------------------------------------------------------------------------------------------------
    def delete(self, call: Call) -> Response:
        """Answer a DELETE of one object."""
        options = _delete_options(call)
        key = ObjectKey(call.key, call.target.namespace, call.target.name)
        return self.deleted(call, key, options)

    def deleted(self, call: Call, key: ObjectKey, options: Json) -> Response:
        """Delete with DeleteOptions; answers with a Status, or the object if it stays or is of some built-in kinds."""
        gone = self._store.delete(key.resource, key.namespace, key.name, **_arguments(call, options))
        resource = call.served.resource
        if gone.is_gone and resource.key not in {"pods", "services", "serviceaccounts", "persistentvolumeclaims"}:
            uid = gone.entry.uid
            body = success(name=key.name, group=resource.group, kind=resource.plural, uid=uid)
            return Response(200, encode(body))
        return self.answer(call, 200, gone.entry)

    def delete_collection(self, call: Call) -> Response:
        """Answer a DELETE of all objects that the selectors match."""
        options = _delete_options(call)
        chosen = read_handlers.selected(self._store, call)
        for key, _ in chosen:
            self._store.delete(key.resource, key.namespace, key.name, **_arguments(call, options))
        view = call.view()
        body = view.list_body(chosen, {"resourceVersion": str(self._store.version)}, self._store.now())
        return Response(200, body, read_handlers.headers_of(view))


def _content_type(call: Call) -> str:
    return call.request.headers.get("content-type", "").partition(";")[0].strip()


def _within_subresource(call: Call, old: Json, new: Json) -> Json:
    """The whole object to store, with only the changes that the written endpoint allows."""
    if call.target.subresource == "status":
        whole = {**old, "metadata": new["metadata"]}
        if call.served.resource.is_custom:
            sent = new["metadata"]
            # A uid in a status write is ignored, as on a real server; only its resourceVersion is a precondition.
            whole["metadata"] = {**old["metadata"], "resourceVersion": sent.get("resourceVersion")}
            if sent.get("managedFields"):
                whole["metadata"]["managedFields"] = sent["managedFields"]
        whole.pop("status", None)
        if new.get("status") is not None:
            whole["status"] = new["status"]
        return whole
    if call.served.resource.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    return new


def _keep_identity(old: Json, new: Json) -> None:
    """Copy name and namespace, which the store keeps anyway, so that they do not count as changes."""
    for field in ("name", "namespace"):
        if field in old["metadata"]:
            new["metadata"][field] = old["metadata"][field]


def _delete_options(call: Call) -> Json:
    options = call.body() if call.request.body else {}
    query = call.request.query
    if "gracePeriodSeconds" in query:
        options["gracePeriodSeconds"] = call.integer("gracePeriodSeconds")
    if "propagationPolicy" in query:
        options["propagationPolicy"] = query["propagationPolicy"]
    if call.is_dry_run:
        options["dryRun"] = ["All"]
    if "propagationPolicy" not in options and call.flag("orphanDependents"):
        options["propagationPolicy"] = "Orphan"
    return options


def _arguments(call: Call, options: Json) -> Json:
    preconditions = options.get("preconditions") or {}
    return {
        "uid": preconditions.get("uid"),
        "resource_version": preconditions.get("resourceVersion"),
        "grace_s": options.get("gracePeriodSeconds"),
        "propagation": options.get("propagationPolicy"),
        "is_dry_run": "All" in (options.get("dryRun") or ()) or call.is_dry_run,
    }
