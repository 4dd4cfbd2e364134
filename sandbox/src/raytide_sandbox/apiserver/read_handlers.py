"""Handlers of GET, LIST and WATCH.

Takes a `Call` and returns a Response or a WatchCursor: one object, a page of a list (limit, continue, selectors), or a
watch that starts at a version, with the existing objects, or with those followed by a bookmark. Never changes the
store. Called by `routes.py`.
"""

import base64
import binascii
from typing import Any

import msgspec

from raytide_sandbox.apiserver.api_status import ApiStatusError, Cause, bad_request, expired, invalid, too_large_version
from raytide_sandbox.apiserver.printing.views import View
from raytide_sandbox.apiserver.request_info import Call
from raytide_sandbox.apiserver.request_response import Response
from raytide_sandbox.apiserver.selectors import entry_matcher, field_requirements, label_test
from raytide_sandbox.apiserver.store import Entry, ObjectKey, Store
from raytide_sandbox.apiserver.watch_cursor import Matcher, WatchCursor, WatchOptions

Json = dict[str, Any]
encode = msgspec.json.encode

_END_OF_LIST = "k8s.io/initial-events-end"


def get(store: Store, call: Call) -> Response:
    """Answer a GET of one object."""
    entry = store.entry(call.key, call.target.namespace, call.target.name)
    view = call.view()
    return Response(200, view.body(entry, store.now()), headers_of(view))


def headers_of(view: View) -> dict[str, str]:
    """The headers of an answer in this view, with a warning for a deprecated version."""
    headers = {"content-type": view.content_type}
    if view.served.warning:
        headers["warning"] = f'299 - "{view.served.warning}"'
    return headers


def selection(call: Call) -> tuple[str, Matcher | None]:
    """(the only name that can match or "", the predicate) for a list, watch or deletecollection."""
    query = call.request.query
    text = query.get("fieldSelector", "")
    requirements = field_requirements(text, call.served.resource, call.served.selectable)
    if call.target.name:
        requirements.append(("metadata.name", call.target.name, True))
    name = next((value for field, value, is_equal in requirements if field == "metadata.name" and is_equal), "")
    return name, entry_matcher(label_test(query.get("labelSelector", "")), requirements)


def selected(store: Store, call: Call) -> list[tuple[ObjectKey, Entry]]:
    """All objects of the call's kind and namespace that its selectors match, in order."""
    name, matches = selection(call)
    namespace = call.target.namespace
    if name and (namespace or not call.served.resource.is_namespaced):
        entry = store.find(call.key, namespace, name)
        entries = [] if entry is None else [(ObjectKey(call.key, namespace, name), entry)]
    else:
        entries = store.entries(call.key, namespace)
    return entries if matches is None else [pair for pair in entries if matches(pair[1])]


# --- lists -------------------------------------------------------------------------------------------------------------
def list_objects(store: Store, call: Call) -> Response:
    """Answer a list or one page of it; all pages carry the version of the first, but read the current objects."""
    entries = selected(store, call)
    version, metadata = store.version, {}
    asked = call.request.query.get("resourceVersion") or "0"
    if not asked.isdigit():
        raise bad_request(f"invalid resource version: {_no_version(asked)}")
    if int(asked) > version:
        raise too_large_version(int(asked), version)
    token = call.request.query.get("continue", "")
    if token:
        version, start = _read_token(token)
        if version < store.oldest_version(call.key):
            raise ApiStatusError(
                410, "Expired", "The provided continue parameter is too old to display a consistent list result."
            )
        entries = [pair for pair in entries if (pair[0].namespace, pair[0].name) > start]
    limit = call.integer("limit") or 0
    if 0 < limit < len(entries):
        last = entries[limit - 1][0]
        metadata = {"continue": _token(version, last), "remainingItemCount": len(entries) - limit}
        if call.request.query.get("labelSelector") or call.request.query.get("fieldSelector"):
            del metadata["remainingItemCount"]
        entries = entries[:limit]
    view = call.view()
    body = view.list_body(entries, {"resourceVersion": str(version), **metadata}, store.now())
    return Response(200, body, headers_of(view))


def _token(version: int, last: ObjectKey) -> str:
    return base64.urlsafe_b64encode(encode([version, last.namespace, last.name])).decode()


def _read_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        version, namespace, name = msgspec.json.decode(base64.urlsafe_b64decode(token), type=tuple[int, str, str])
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise bad_request("continue key is not valid") from error
    return version, (namespace, name)


# --- watches -----------------------------------------------------------------------------------------------------------
def watch(store: Store, call: Call) -> WatchCursor:
    """Open a cursor with everything the client has not seen; 410 when the history is no longer stored."""
    view = call.view()
    has_initial = call.flag("sendInitialEvents")
    asked = _asked_version(call)
    match = call.request.query.get("resourceVersionMatch")
    if has_initial and match != "NotOlderThan":
        raise _forbidden_match("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if match and "sendInitialEvents" not in call.request.query:
        raise _forbidden_match("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    newest = max(store.version, store.highest_version)
    if asked and not has_initial and not store.oldest_version(call.key) <= asked <= newest:
        raise expired(asked, store.oldest_version(call.key))
    _, matches = selection(call)
    timeout = call.integer("timeoutSeconds")
    options = WatchOptions(
        namespace=call.target.namespace,
        matches=matches,
        view=None if view.is_raw else lambda event_type, entry: view.line(event_type, entry, store.now()),
        has_bookmarks=call.flag("allowWatchBookmarks"),
        timeout_s=float(timeout) if timeout else None,
        after=0 if has_initial else asked,
        content_type=view.content_type,
    )
    cursor = WatchCursor(store, call.key, options, bookmark=lambda: _bookmark(view, store))
    if asked and not has_initial:
        # After a restore, the watch stays silent up to the client's version, as with a real API server.
        for change in store.changes_since(call.key, min(asked, store.version)):
            cursor.see(change)
        return cursor
    for _, entry in store.entries(call.key, call.target.namespace):
        cursor.show("ADDED", entry)
    if has_initial and options.has_bookmarks:
        cursor.add(_bookmark(view, store, is_end_of_list=True))
    return cursor


def _asked_version(call: Call) -> int:
    text = call.request.query.get("resourceVersion") or "0"
    if not text.isdigit():
        raise bad_request(_no_version(text))
    return int(text)


def _no_version(text: str) -> str:
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


def _forbidden_match(text: str) -> ApiStatusError:
    fault = Cause("resourceVersionMatch", f"Forbidden: {text}", "FieldValueForbidden")
    return invalid("ListOptions", "", [fault], group="meta.k8s.io")


def _bookmark(view: View, store: Store, *, is_end_of_list: bool = False) -> bytes:
    metadata: Json = {"resourceVersion": str(store.version)}
    if is_end_of_list:
        metadata["annotations"] = {_END_OF_LIST: "true"}
    resource = view.served.resource
    obj: Json = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    if view.form:
        obj.update(kind=view.form, apiVersion="meta.k8s.io/v1")
    if view.form == "Table":
        obj.update(columnDefinitions=[], rows=[])
    return encode({"type": "BOOKMARK", "object": obj}) + b"\n"
