"""What does a Kubernetes API server answer to this request?

`Api(store).handle(Request)` returns a `Response`, a `WatchCursor` or a `Proxied`; it never raises for anything a client
may send, never blocks and knows no socket, so the HTTP adapter and a simulation in virtual time use the very same
server (D17). What it does not implement answers 501. Called by `http.py` and by in-process transports.
"""

from collections.abc import Callable

from raytide.sandbox.apiserver.messages import Proxied, Request, Response
from raytide.sandbox.apiserver.store import Store
from raytide.sandbox.apiserver.watching import WatchCursor

Answer = Response | WatchCursor | Proxied


class Api:
    """One API server over one store.

    `new_suffix` gives the five characters after a generateName. Everything a client sends that is refused comes back as
    a Response with a Status object in it.
    """

    def __init__(self, store: Store, *, new_suffix: Callable[[], str]) -> None:
        self.store = store
        self.new_suffix = new_suffix

    def handle(self, request: Request) -> Answer:
        """Answer one request."""
        raise AssertionError(request)


__all__ = ["Answer", "Api", "Proxied", "Request", "Response", "WatchCursor"]
