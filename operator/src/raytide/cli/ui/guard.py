"""Requests that the page's server answers, and headers of its answers.

Its port can be reached by every program of the machine, or of the cluster, and by every page in a user's browser. So the API takes
only requests with a token that access.py accepts, in a header that another site cannot set; a request that names another Origin is
rejected, and on a user's machine, whose rights the server has, so is one with another Host, against DNS rebinding. The page itself
is the same for everyone and has no token. Errors are one sentence as JSON.
"""

import traceback
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

import click
from aiohttp import web

from raytide.cli.columns import printable
from raytide.cli.ui.access import Access, AccessError, View

HOSTS: Final = frozenset({"127.0.0.1", "localhost"})
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def problem(status: int, sentence: str) -> web.Response:
    """The answer to a request that fails."""
    return web.json_response({"error": sentence}, status=status)


def host_of(request: web.Request) -> str | None:
    """The host without its port; None if the header is no host."""
    try:
        return urlsplit(f"//{request.headers.get('Host', '')}").hostname
    except ValueError:
        return None


def rejection(request: web.Request, *, is_local: bool) -> web.Response | None:
    """Why the request is answered to no one; None if its token decides."""
    if is_local and host_of(request) not in HOSTS:
        return problem(403, "the Host of the request is not this machine: use the address that `raytide ui` printed")
    origin = request.headers.get("Origin")
    # Behind a proxy that ends TLS the scheme differs; the host and the port are those that the browser has.
    if origin is not None and origin not in {
        f"{scheme}://{request.headers.get('Host')}" for scheme in ("http", "https")
    }:
        return problem(403, "the request comes from another site")
    return None


def token_of(request: web.Request) -> str:
    """The bearer token of the request; empty without one."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token if scheme == "Bearer" else ""


class Guard:
    """Middleware that answers only permitted requests, and gives no internals in errors."""

    __middleware_version__ = 1
    """What aiohttp's decorator sets on functions."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def view(self, request: web.Request) -> View:
        """What the caller of the request may see now; raises AccessError."""
        return await self._access.view(token_of(request), request.query.get("namespace"))

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The handler's answer, or a problem."""
        rejected = rejection(request, is_local=self._access.is_local)
        if rejected is not None:
            return rejected
        try:
            if request.path.startswith("/api/"):
                await self.view(request)
            return await handler(request)
        except AccessError as error:
            return problem(error.status, str(error))
        except web.HTTPRequestEntityTooLarge:
            return problem(413, "the YAML is too large")
        except web.HTTPException as error:
            return problem(error.status, error.reason)
        except (ConnectionError, TimeoutError):
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the page gets none of it
            for line in traceback.format_exc().splitlines():
                click.echo(printable(line), err=True)
            return problem(500, "an internal error occurred: the output of `raytide ui` has the details")


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler: the headers of every answer."""
    response.headers.update(HEADERS)
    response.headers.popall("Server", None)
