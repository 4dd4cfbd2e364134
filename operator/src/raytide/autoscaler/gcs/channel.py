"""gRPC channel to the GCS.

`GrpcTransport` calls over one gRPC channel, with a deadline and the current token on every call, and maps gRPC status codes
to `ApiUnavailableError` and `ApiStatusError`. The GCS may be down for hours and return as a new one: the channel reconnects by itself,
at most every few seconds, and is replaced after several calls without an answer or when the certificates change. No
cluster identity is sent, so a new GCS accepts the calls too. Created by `connect_gcs`; rules AS §1.6.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.autoscaler.gcs.client import Gcs, ReplyT, RequestT, Rpc
from raytide.autoscaler.gcs.credentials import Certificates, GcsAccess, Token

TIMEOUT_S: Final = 10.0
MAX_UNANSWERED_CALLS: Final = 3
"""After so many timeouts in a row a new channel is opened: the peer may be gone without closing the connection."""
LONGEST_MESSAGE: Final = 64 * 1024 * 1024
"""Bytes: decoding a reply takes several times its length, and the container may have 512 MiB. The state of 10,000 nodes
is about 20 MB."""
OPTIONS: Final = (
    ("grpc.max_receive_message_length", LONGEST_MESSAGE),
    ("grpc.max_send_message_length", LONGEST_MESSAGE),
    ("grpc.keepalive_time_ms", 300_000),
    ("grpc.keepalive_timeout_ms", 120_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 3_000),
    ("grpc.use_local_subchannel_pool", 1),
)

CODES: Final = grpc.StatusCode
RETRYABLE: Final = frozenset(
    {
        CODES.UNAVAILABLE,
        CODES.DEADLINE_EXCEEDED,
        CODES.CANCELLED,
        CODES.INTERNAL,
        CODES.UNKNOWN,
        CODES.RESOURCE_EXHAUSTED,
    }
)
"""Codes for which a retry may succeed."""
HTTP_STATUS: Final = {
    CODES.INVALID_ARGUMENT: 400,
    CODES.FAILED_PRECONDITION: 400,
    CODES.OUT_OF_RANGE: 400,
    CODES.UNAUTHENTICATED: 401,
    CODES.PERMISSION_DENIED: 403,
    CODES.NOT_FOUND: 404,
    CODES.ALREADY_EXISTS: 409,
    CODES.ABORTED: 409,
    CODES.UNIMPLEMENTED: 501,
}


def connect_gcs(address: str, access: GcsAccess, *, timeout_s: float = TIMEOUT_S) -> Gcs:
    """A client for the GCS at `host:port`; connects with the first call, which needs a running event loop."""
    return Gcs(GrpcTransport(address, access, timeout_s=timeout_s))


@dataclass(slots=True)
class _Connection:
    """One channel and its state."""

    channel: grpc.aio.Channel
    certificates: tuple[bytes, ...]
    calls: int = 0
    unanswered_calls: int = 0
    is_retired: bool = False


class GrpcTransport:
    """A `Wire` over gRPC."""

    def __init__(self, address: str, access: GcsAccess, *, timeout_s: float = TIMEOUT_S) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._token = Token(access)
        self._certificates = Certificates(access)
        self._connection: _Connection | None = None
        self._is_closed = False

    async def call(self, rpc: Rpc[RequestT, ReplyT], request: RequestT) -> ReplyT:
        """Call within the deadline; raises `ApiUnavailableError` or `ApiStatusError`."""
        if self._is_closed:
            raise ApiUnavailableError(f"{_method(rpc)}: the connection to the GCS was closed")
        token = self._token.read()
        connection = self._current_connection()
        connection.calls += 1
        try:
            return await self._send(connection, rpc, request, token)
        finally:
            connection.calls -= 1
            await self._close_if_done(connection)

    async def close(self) -> None:
        """Close at once; calls in progress raise `ApiUnavailableError`."""
        self._is_closed = True
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.channel.close()

    async def _send(self, connection: _Connection, rpc: Rpc[RequestT, ReplyT], request: RequestT, token: str) -> ReplyT:
        method = connection.channel.unary_unary(rpc.path, request_serializer=rpc.asked.SerializeToString)
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        try:
            answer: bytes = await method(request, timeout=self._timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            self._record_result(connection, is_unanswered=error.code() is CODES.DEADLINE_EXCEEDED)
            raise self._api_error(rpc, error.code(), error.details() or "") from None
        except (asyncio.CancelledError, grpc.aio.UsageError):
            task = asyncio.current_task()
            if not self._is_closed or (task is not None and task.cancelling()):
                raise
            raise ApiUnavailableError(f"{_method(rpc)}: the connection to the GCS was closed") from None
        connection.unanswered_calls = 0
        return _read(rpc, answer)

    def _current_connection(self) -> _Connection:
        """The channel in use, or a new one if there is none or the certificates have changed."""
        certificates = self._certificates.read()
        if self._connection is None or self._connection.certificates != certificates:
            self._retire()
            self._connection = _Connection(self._open(certificates), certificates)
        return self._connection

    def _open(self, certificates: tuple[bytes, ...]) -> grpc.aio.Channel:
        if not certificates:
            return grpc.aio.insecure_channel(self.address, options=OPTIONS)
        credentials = grpc.ssl_channel_credentials(*certificates)
        return grpc.aio.secure_channel(self.address, credentials, options=OPTIONS)

    def _record_result(self, connection: _Connection, *, is_unanswered: bool) -> None:
        connection.unanswered_calls = connection.unanswered_calls + 1 if is_unanswered else 0
        if connection is self._connection and connection.unanswered_calls >= MAX_UNANSWERED_CALLS:
            self._retire()

    def _retire(self) -> None:
        """Use the channel for no new calls; calls in progress may finish."""
        if self._connection is not None:
            self._connection.is_retired = True
            self._connection = None

    async def _close_if_done(self, connection: _Connection) -> None:
        if connection.is_retired and connection.calls == 0:
            await connection.channel.close()

    def _api_error(
        self, rpc: Rpc[RequestT, ReplyT], code: grpc.StatusCode, details: str
    ) -> ApiStatusError | ApiUnavailableError:
        message = f"{_method(rpc)} at {self.address}: {details or code.name}"
        if code is CODES.RESOURCE_EXHAUSTED and "larger than max" in details:
            message += (
                f"; the sidecar reads replies of at most {LONGEST_MESSAGE >> 20} MiB and makes no decisions until there are "
                "fewer nodes, resource demands or placement groups"
            )
        if code in RETRYABLE:
            is_answer = code not in (CODES.UNAVAILABLE, CODES.DEADLINE_EXCEEDED)
            return ApiUnavailableError(message, is_outcome_unknown=rpc.is_write, is_answer=is_answer)
        if code is CODES.UNAUTHENTICATED:
            message = f"{_method(rpc)} at {self.address}: {self._token_message()}"
        reason = code.name.title().replace("_", "")
        return ApiStatusError(HTTP_STATUS.get(code, 500), reason, message)

    def _token_message(self) -> str:
        if source := self._token.source:
            return f"the GCS rejects the token from {source}"
        return "the GCS requires a token, but RAY_AUTH_MODE is not token: set RAY_AUTH_MODE and the token as in the Ray container"


def _read(rpc: Rpc[RequestT, ReplyT], answer: bytes) -> ReplyT:
    """Decode the reply; gRPC's own deserializer would return None for invalid bytes."""
    try:
        return rpc.answer.FromString(answer)
    except DecodeError:
        raise ApiUnavailableError(f"{_method(rpc)}: the reply cannot be decoded", is_answer=True) from None


def _method(rpc: Rpc[RequestT, ReplyT]) -> str:
    return rpc.path.rpartition("/")[2]
