"""Requests that the page's server answers, and headers of its answers.

It runs with the rights of the user, on a port that every program of the machine and every page in the user's browser can reach.
So the API takes only requests with the token that was printed at the start, in a header that another site cannot set; the Host
must be this machine, against DNS rebinding; and a request that names another Origin is rejected. The page itself is the same for
everyone and has no token. Errors are one sentence as JSON.
"""

import hmac
import traceback
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

import click
from aiohttp import web

from raytide.cli.columns import printable

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


def rejection(request: web.Request, token: str) -> web.Response | None:
    """Why the request is not answered; None if it is."""
    if host_of(request) not in HOSTS:
        return problem(403, "the Host of the request is not this machine: use the address that `raytide ui` printed")
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"http://{request.headers['Host']}":
        return problem(403, "the request comes from another site")
    if not request.path.startswith("/api/"):
        return None
    given = request.headers.get("Authorization", "")
    if not hmac.compare_digest(given.encode(errors="replace"), f"Bearer {token}".encode()):
        return problem(401, "the token is missing or wrong: open the address that `raytide ui` printed")
    return None


class Guard:
    """Middleware that answers only permitted requests, and gives no internals in errors."""

    __middleware_version__ = 1
    """What aiohttp's decorator sets on functions."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The handler's answer, or a problem."""
        rejected = rejection(request, self._token)
        if rejected is not None:
            return rejected
        try:
            return await handler(request)
        except web.HTTPRequestEntityTooLarge:
            return problem(413, "the YAML is too large")
        except web.HTTPException as error:
            return problem(error.status, error.reason)
        except (ConnectionError, TimeoutError):
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the page gets none of it
            for line in traceback.format_exc().splitlines():
                click.echo(printable(line), err=True)
            return problem(500, "an internal error occurred: the terminal of `raytide ui` has the details")


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler: the headers of every answer."""
    response.headers.update(HEADERS)
    response.headers.popall("Server", None)
