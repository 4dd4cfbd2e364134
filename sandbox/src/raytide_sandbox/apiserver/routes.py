"""The API server: routing of requests to their handlers.

`Api(store).handle(Request)` returns a `Response`, a `WatchCursor` or a `Proxied`. It turns client errors into
responses, never blocks and uses no socket, so the HTTP adapter and a simulation in virtual time run the same server
(D17). Features that it does not implement get 501. Called by `http.py` and by in-process transports.
"""

import weakref
from collections.abc import Callable
from typing import Any, Final

import msgspec

from raytide_sandbox.apiserver import access_reviews, read_handlers
from raytide_sandbox.apiserver.api_status import ApiStatusError, bad_request, not_found, not_implemented, unknown_path
from raytide_sandbox.apiserver.builtin_resources import CRDS
from raytide_sandbox.apiserver.discovery import Discovery
from raytide_sandbox.apiserver.openapi import OpenApi
from raytide_sandbox.apiserver.registry import CLEANUP, Registry
from raytide_sandbox.apiserver.request_info import Call, Target, parse_target
from raytide_sandbox.apiserver.request_response import Proxied, Request, Response
from raytide_sandbox.apiserver.store import Change, Store
from raytide_sandbox.apiserver.subresources import MintToken, Subresources
from raytide_sandbox.apiserver.watch_cursor import WatchCursor
from raytide_sandbox.apiserver.write_handlers import Writer

Json = dict[str, Any]
Answer = Response | WatchCursor | Proxied
encode = msgspec.json.encode

VERSION: Final = {
    "major": "1",
    "minor": "35",
    "gitVersion": "v1.35.0-sandbox",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_HEALTH: Final = {"healthz", "livez", "readyz"}
_STREAMED: Final = {"exec", "attach", "portforward"}
_SYSTEM_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


def _anonymous(_token: str) -> str | None:
    return None


class Api:
    """One API server over one store.

    - `new_suffix` returns the five characters after a generateName.
    - `mint_token` serves serviceaccounts/token, which answers 501 without it.
    - `authenticate` serves only TokenReview; the adapter authenticates requests.
    - The four system namespaces are created if missing.
    """

    def __init__(
        self,
        store: Store,
        *,
        new_suffix: Callable[[], str],
        mint_token: MintToken | None = None,
        authenticate: access_reviews.Authenticate = _anonymous,
    ) -> None:
        self.store = store
        self._cursors: weakref.WeakSet[WatchCursor] = weakref.WeakSet()
        self._registry = Registry(store, on_gone=self._close_watches)
        self._writer = Writer(store, new_suffix=new_suffix)
        self._subresources = Subresources(store, self._writer, mint_token=mint_token)
        self._discovery = Discovery(self._registry)
        self._openapi = OpenApi(self._registry)
        self._authenticate = authenticate
        self._ending: set[str] = set()
        self._unsubscribe = store.subscribe(self._on_crd_change, CRDS)
        for name in _SYSTEM_NAMESPACES:
            if store.find("namespaces", "", name) is None:
                store.create("namespaces", {"metadata": {"name": name}})

    def handle(self, request: Request) -> Answer:
        """Answer one request; an ApiStatusError becomes a Response with a Status."""
        try:
            answer = self._route(request)
        except ApiStatusError as status:
            headers = {"content-type": "application/json"}
            if status.retry_after_s:
                headers["retry-after"] = str(status.retry_after_s)
            return Response(status.code, encode(status.body()), headers)
        if self._ending and request.method != "GET":
            self.finish_definitions()
        if isinstance(answer, WatchCursor):
            self._cursors.add(answer)
        return answer

    # --- routing -----------------------------------------------------------------------------------------------------
    def _route(self, request: Request) -> Answer:
        root, _, rest = request.path.strip("/").partition("/")
        if root in {"api", "apis"}:
            if rest.count("/") < (1 if root == "api" else 2):
                return self._discovery.answer(request)
            return self._resource(request, parse_target(request.path))
        if root == "openapi":
            return self._openapi.answer(request)
        if root == "version":
            return Response(200, encode(VERSION))
        if root in _HEALTH:
            return Response(200, b"ok", {"content-type": "text/plain"})
        if not root:
            return Response(200, encode({"paths": ["/api", "/apis", "/healthz", "/openapi/v3", "/version"]}))
        raise unknown_path()

    def _resource(self, request: Request, target: Target) -> Answer:
        review = access_reviews.find_review(target.group, target.version, target.plural)
        if review is not None:
            return access_reviews.answer(review, request, self._authenticate)
        call = Call(request, target, self._registry.find(target.group, target.version, target.plural))
        resource = call.served.resource
        if target.namespace and not resource.is_namespaced:
            raise unknown_path()
        try:
            if target.subresource:
                return self._below(call)
            return self._object(call) if target.name else self._collection(call)
        except ApiStatusError as status:
            raise status.named(resource.group_resource) if resource.storage_key else status from None
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            # A built-in object of the wrong shape (a list instead of a map): no schema has rejected it earlier.
            if request.method in {"GET", "DELETE"}:
                raise
            where = f"{type(error).__name__}: {error}"
            raise bad_request(f"{resource.kind} in version {resource.version!r} cannot be handled: {where}") from error

    def _collection(self, call: Call) -> Answer:
        match call.request.method:
            case "GET" | "HEAD":
                return (
                    read_handlers.watch(self.store, call)
                    if call.is_watch
                    else read_handlers.list_objects(self.store, call)
                )
            case "POST":
                return self._writer.create(call)
            case "DELETE":
                return self._writer.delete_collection(call)
        raise _not_allowed()

    def _object(self, call: Call) -> Answer:
        match call.request.method:
            case "GET" | "HEAD":
                return read_handlers.watch(self.store, call) if call.is_watch else read_handlers.get(self.store, call)
            case "PUT":
                return self._writer.replace(call)
            case "PATCH":
                return self._writer.patch(call)
            case "DELETE":
                return self._writer.delete(call)
        raise _not_allowed()

    def _below(self, call: Call) -> Answer:
        name, method = call.target.subresource, call.request.method
        if name not in call.served.subresources:
            if call.key == "pods" and name in {"ephemeralcontainers", "resize"}:
                raise not_implemented(f"pods/{name}")
            if call.served.resource.is_custom:
                raise not_found(call.key, call.target.name)
            raise unknown_path()
        if name == "proxy":
            return self._subresources.proxy(call)
        if name in _STREAMED:
            return self._subresources.stream(call)
        if name == "log":
            return self._subresources.log(call)
        if name == "scale":
            return self._subresources.scale(call)
        if method == "POST":
            return self._subresources.post(call)
        if name in {"status", "finalize"} and method in {"GET", "PUT", "PATCH"}:
            return self._object(call)
        raise _not_allowed()

    # --- removal of a custom kind --------------------------------------------------------------------------------
    def _on_crd_change(self, change: Change) -> None:
        if change.type == "DELETED":
            self._ending.discard(change.key.name)
        elif change.entry.is_terminating:
            self._ending.add(change.key.name)

    def finish_definitions(self) -> None:
        """Delete the objects of terminating definitions; then release the definitions."""
        for name in sorted(self._ending):
            for key, entry in self.store.entries(name):
                if not entry.is_terminating:
                    self.store.delete(key.resource, key.namespace, key.name)
            if self.store.count(name) == 0:
                definition = self.store.get(CRDS, "", name)
                kept = [item for item in definition["metadata"].get("finalizers") or () if item != CLEANUP]
                definition["metadata"]["finalizers"] = kept
                self.store.update(CRDS, definition)

    def _close_watches(self, resource: str) -> None:
        for cursor in list(self._cursors):
            if cursor.resource == resource:
                cursor.close()


def _not_allowed() -> ApiStatusError:
    return ApiStatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


__all__ = ["Answer", "Api", "Proxied", "Request", "Response", "WatchCursor"]
