"""Log lines and error messages of the client, the informers, leader election and the access review.

One constant or function per text. Constants are log lines: templates with the arguments that their docstring lists.
Functions return the message of an error. Errors of the API server are quoted unchanged. Called by the modules of this
package; decides nothing.
"""

from collections.abc import Iterable
from typing import Final

# --- connection --------------------------------------------------------------------------------------------------------

CREDENTIALS_NOT_RENEWED: Final = "credentials could not be renewed: %s"
"""The previous ones stay in use: error."""
NO_CLUSTER: Final = (
    "no cluster to talk to: pass --kubeconfig FILE, set KUBECONFIG, "
    "or start a cluster on this machine with `raytide sandbox up`"
)
INSECURE_TLS: Final = (
    "kubeconfig %s sets insecure-skip-tls-verify: an attacker between this machine and %s can read the token and "
    "impersonate the API server; set the cluster's certificate-authority instead"
)
"""Files and server."""


def no_credentials(error: object) -> str:
    """The first credentials could not be read."""
    return f"no credentials: {error}"


def no_service_account(folder: object) -> str:
    """The pod has no token."""
    return f"this pod has no service account under {folder}: mount its token (automountServiceAccountToken: true)"


def token_empty(path: object) -> str:
    """The token's file has no content."""
    return f"{path} is empty"


def certificates_unreadable(error: object) -> str:
    """Certificate authority or client certificate."""
    return f"the certificates for the API server cannot be read: {error}"


def kubeconfig_missing(paths: object) -> str:
    """None of the files exists."""
    return f"kubeconfig {paths} does not exist; {NO_CLUSTER}"


def kubeconfig_unusable(paths: object, error: object) -> str:
    """It cannot be parsed, or an entry is missing; the error is put on one line."""
    return f"kubeconfig {paths} cannot be used: {' '.join(str(error).split())}"


def kubeconfig_unsupported(paths: object, package: object) -> str:
    """A kubeconfig that needs the official client, which is not installed."""
    return (
        f"kubeconfig {paths} cannot be read: the Python package {package} is not installed, which Raytide's container image "
        "leaves out; without it, only a valid kubeconfig with a token or a client certificate can be read; run "
        "`pip install kubernetes`, or in a pod use its service account (no --kubeconfig, no KUBECONFIG)"
    )


def kubeconfig_without_server(paths: object) -> str:
    """Its cluster has no address."""
    return f"kubeconfig {paths} has no server for its cluster"


# --- calls -------------------------------------------------------------------------------------------------------------

TIMED_OUT_UNSENT: Final = "the request timed out before it was sent"
NO_LEASE: Final = "request not sent: the leader election lease is not held or about to expire"
NOT_A_JSON_OBJECT: Final = "not a JSON object"
UNAUTHORIZED: Final = "401 Unauthorized: the API server does not accept the credentials"


def response_undecodable(error: object) -> str:
    """The response to a single call."""
    return f"the response cannot be decoded: {error}"


def list_undecodable(error: object) -> str:
    """One page of a list."""
    return f"the response to a list request cannot be decoded: {error}"


def watch_rejected(status: int) -> str:
    """A watch request with another status than 200 and without a Status object."""
    return f"the watch request was answered with HTTP status {status}"


def no_response(timeout_s: float) -> str:
    """No response, or no line of a watch, in that time."""
    return f"no response within {timeout_s:.0f} s"


def response_too_large(limit_bytes: int) -> str:
    """The response is not read to its end."""
    return f"the response is larger than {limit_bytes >> 20} MiB"


# --- watches -----------------------------------------------------------------------------------------------------------

NOT_SERVED: Final = "%s: the API server does not serve this resource yet"
"""What the reflector waits for."""
OPTIONAL_FORBIDDEN: Final = "%s; until this is allowed, %s; retrying every %.0f s"
"""Error, its consequence, delay."""
RETRYING: Final = "%s%s: %s, retrying in %.1f s: %s"
"""Resource, namespace, what failed, delay, error."""
NOT_DECODED: Final = "%s %s/%s cannot be decoded; its last decoded version, if any, is kept"
"""Logged with the traceback: kind, namespace and name."""
RELISTING: Final = "relisting"
WATCH_INTERRUPTED: Final = "watch interrupted"
CLOSED_AT_ONCE: Final = "the watch was closed at once"


def waiting_for_crd(collection: object) -> str:
    """The kind is not served."""
    return f"waiting for CRD {collection}"


def collection_unavailable(verb: str, collection: object, error: object) -> str:
    """`verb` is list or watch."""
    return f"cannot {verb} {collection}: {error}"


def older_version(served: str, reached: str) -> str:
    """The API server's store was restored: versions of the list and of the watch."""
    return f"the API server's resourceVersion is {served}, older than {reached} of the watch"


def unknown_event_type(event_type: str) -> str:
    """A watch event that no API server of a known version sends."""
    return f"watch event of unknown type {event_type!r}"


def event_undecodable(error: object) -> str:
    """A line of the watch is no event."""
    return f"watch event cannot be decoded: {error}"


# --- events ------------------------------------------------------------------------------------------------------------

EVENT_NOT_RECORDED: Final = "event %s not recorded: %s"
"""The API server did not answer: reason of the event and error."""
EVENT_REJECTED: Final = "API server rejected event %s: %s"
"""Reason of the event and error."""

# --- leader election ---------------------------------------------------------------------------------------------------

BECAME_LEADER: Final = "became leader, term %d: acquired lease %s as %s"
"""Number of the term, key of the lease, identity."""
LEADERSHIP_LOST: Final = "lost lease %s, no longer leader: %s"
"""Key of the lease, and its state."""
LEASE_LEFT_TO_EXPIRE: Final = "lease %s is left to expire, because a write may still take effect for %.1f s"
"""Key of the lease, seconds."""
LEASE_NOT_RELEASED: Final = "lease %s not released, other replicas wait until it expires: %s"
"""Key of the lease, error."""
LEASE_RELEASED: Final = "released lease %s"
"""Key of the lease."""


def lease_failed(key: object, error: object) -> str:
    """An attempt failed; the state is unchanged until the last renewal's deadline."""
    return f"cannot acquire or renew lease {key}: {error}"


def leading(renewed_s: float, may_write_s: float, error: str) -> str:
    """Health check of the leader; `error` is that of the last attempt, if it failed."""
    return f"held, renewed {renewed_s:.1f} s ago, may write for {may_write_s:.1f} s{_with(error)}"


def standby(holder: str, error: str) -> str:
    """Health check of a replica that waits; `holder` is empty while the lease has no holder."""
    return f"standby, {f'held by {holder}' if holder else 'not held yet'}{_with(error)}"


def _with(error: str) -> str:
    return f"; {error}" if error else ""


# --- access review -----------------------------------------------------------------------------------------------------

ALL_GRANTED: Final = "all required permissions are granted"
MISSING: Final = "missing permission: %s, needed to %s"
"""Permission and purpose."""
MISSING_OPTIONAL: Final = "missing optional permission: %s, needed to %s"
"""Permission and purpose."""


def not_reviewed(error: object) -> str:
    """The API server did not answer; the review is repeated."""
    return f"cannot review permissions: {error}"


def missing_permissions(permissions: Iterable[str]) -> str:
    """Readiness check."""
    return f"missing permissions: {', '.join(permissions)}"


# --- CustomResourceDefinitions -----------------------------------------------------------------------------------------


def crd_not_established(name: str, seconds: float) -> str:
    """The API server stored a definition, but does not serve its kind."""
    return f"CustomResourceDefinition {name} is not established after {seconds:g} s: see its conditions"
