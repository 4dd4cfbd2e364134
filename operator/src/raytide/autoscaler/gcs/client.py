"""Client for Ray's GCS.

`Gcs` offers the calls the autoscaler needs, with its own types; a `Wire` transports the messages (channel.py over gRPC,
tests in one process). Every call either returns or raises `ApiUnavailableError` (not reachable, too slow, starting: retry) or
`ApiStatusError` (rejected by the GCS). The cluster state is always requested without a version, since one from the future
crashes the GCS (AS:B-27). Called by the loop; rules AS §1.4.
"""

import logging
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

from google.protobuf.message import Message

from raytide.api.errors import ApiStatusError
from raytide.autoscaler.gcs import gcs_pb2 as pb
from raytide.autoscaler.gcs.messages import NodeCache, decode_state, encode_report
from raytide.autoscaler.model import Demand, Drained, DrainReason, GcsState, HeadDirectories, Report

log = logging.getLogger(__name__)

RequestT = TypeVar("RequestT", bound=Message)
ReplyT = TypeVar("ReplyT", bound=Message)

MISSING: Final = 17
"""Status code in a reply for a missing key."""
NODE_ID_BYTES: Final = 28
DEFAULT_TEMP_DIR: Final = "/tmp/ray"  # noqa: S108 - Ray's default
REASONS: Final = {
    DrainReason.IDLE_TERMINATION: pb.DrainNodeRequest.IDLE_TERMINATION,
    DrainReason.PREEMPTION: pb.DrainNodeRequest.PREEMPTION,
}


class GcsClient(Protocol):
    """The GCS calls the loop needs; every call raises `ApiUnavailableError` or `ApiStatusError`."""

    async def check_alive(self) -> str:
        """Ray's version."""

    async def state(self) -> GcsState:
        """The current cluster resource state."""

    async def report(self, report: Report) -> None:
        """Replace the autoscaling state behind `ray status`; the GCS silently ignores a lower version (AS:G-10)."""

    async def reported_version(self) -> int:
        """Version of the report the GCS holds; 0 if there is none (AS:B-5)."""

    async def drain(self, node_id: str, *, reason: DrainReason, message: str, deadline_ms: int = 0) -> Drained:
        """Request a drain of a node; the deadline is in milliseconds since the epoch, 0 means none."""

    async def kv_get(self, key: str, *, namespace: str = "") -> bytes | None:
        """A value, or None if the key is missing."""

    async def kv_put(self, key: str, value: bytes, *, namespace: str = "") -> None:
        """Write a value, overwriting an older one."""

    async def head_directories(self) -> HeadDirectories:
        """The directories of Ray on the head."""

    async def close(self) -> None:
        """Close the connection; calls in progress raise `ApiUnavailableError`."""


@dataclass(frozen=True, slots=True)
class Rpc(Generic[RequestT, ReplyT]):
    """One RPC method of the GCS."""

    path: str
    asked: type[RequestT]
    answer: type[ReplyT]
    is_write: bool = False


class GcsTransport(Protocol):
    """Transport for one request and its reply."""

    async def call(self, rpc: Rpc[RequestT, ReplyT], request: RequestT) -> ReplyT:
        """Call within a deadline; raises `ApiUnavailableError` or `ApiStatusError`."""

    async def close(self) -> None:
        """Close the transport."""


AUTOSCALER: Final = "/ray.rpc.autoscaler.AutoscalerStateService"
NODES: Final = "/ray.rpc.NodeInfoGcsService"
KV: Final = "/ray.rpc.InternalKVGcsService"

GET_STATE: Final = Rpc(
    f"{AUTOSCALER}/GetClusterResourceState", pb.GetClusterResourceStateRequest, pb.GetClusterResourceStateReply
)
REPORT: Final = Rpc(
    f"{AUTOSCALER}/ReportAutoscalingState",
    pb.ReportAutoscalingStateRequest,
    pb.ReportAutoscalingStateReply,
    is_write=True,
)
GET_STATUS: Final = Rpc(f"{AUTOSCALER}/GetClusterStatus", pb.GetClusterStatusRequest, pb.GetClusterStatusReply)
DRAIN: Final = Rpc(f"{AUTOSCALER}/DrainNode", pb.DrainNodeRequest, pb.DrainNodeReply, is_write=True)
GET_NODES: Final = Rpc(f"{NODES}/GetAllNodeInfo", pb.GetAllNodeInfoRequest, pb.GetAllNodeInfoReply)
CHECK_ALIVE: Final = Rpc(f"{NODES}/CheckAlive", pb.CheckAliveRequest, pb.CheckAliveReply)
KV_GET: Final = Rpc(f"{KV}/InternalKVGet", pb.KvGetRequest, pb.KvGetReply)
KV_PUT: Final = Rpc(f"{KV}/InternalKVPut", pb.KvPutRequest, pb.KvPutReply, is_write=True)


@dataclass(frozen=True, slots=True)
class LastRequest:
    """Resources of the last `request_resources()` call reported by the GCS, and its session."""

    session: str = ""
    constraint: tuple[Demand, ...] | None = None

    def after(self, state: GcsState) -> "LastRequest":
        """The request in effect after this state: it lasts until the next call or the next session.

        The GCS keeps the constraint in memory and never drops it: an empty call leaves an empty one. A missing
        constraint was therefore lost in a GCS restart (AS:G-9).
        """
        if state.constraint is not None or not state.session or state.session != self.session:
            return LastRequest(state.session, state.constraint)
        return self


class Gcs:
    """A `GcsClient` over any `Wire`."""

    def __init__(self, transport: GcsTransport) -> None:
        self._transport = transport
        self._node_cache: NodeCache = {}
        self._requested = LastRequest()
        self._is_request_lost = False

    async def check_alive(self) -> str:
        """Ray's version."""
        answer = await self._transport.call(CHECK_ALIVE, pb.CheckAliveRequest())
        _check(answer.status, "the GCS reports an error")
        return answer.ray_version

    async def state(self) -> GcsState:
        """The current cluster resource state, with a `request_resources()` constraint the GCS has lost."""
        state = decode_state(
            await self._transport.call(GET_STATE, pb.GetClusterResourceStateRequest()), self._node_cache
        )
        self._requested = self._requested.after(state)
        is_lost = state.constraint != self._requested.constraint
        if is_lost and not self._is_request_lost:
            log.info(
                "the GCS has lost the constraint of request_resources(), the last known one applies until the next call"
            )
        self._is_request_lost = is_lost
        return replace(state, constraint=self._requested.constraint) if is_lost else state

    async def report(self, report: Report) -> None:
        """Replace the autoscaling state behind `ray status`."""
        await self._transport.call(REPORT, encode_report(report))

    async def reported_version(self) -> int:
        """Version of the report the GCS holds; 0 if there is none."""
        answer = await self._transport.call(GET_STATUS, pb.GetClusterStatusRequest())
        return answer.autoscaling_state.autoscaler_state_version

    async def drain(self, node_id: str, *, reason: DrainReason, message: str, deadline_ms: int = 0) -> Drained:
        """Request a drain of a node."""
        order = pb.DrainNodeRequest(
            node_id=_node_id(node_id),
            reason=REASONS[reason],
            reason_message=message,
            deadline_timestamp_ms=deadline_ms,
        )
        answer = await self._transport.call(DRAIN, order)
        return Drained(answer.is_accepted, answer.rejection_reason_message)

    async def kv_get(self, key: str, *, namespace: str = "") -> bytes | None:
        """A value, or None if the key is missing."""
        answer = await self._transport.call(KV_GET, pb.KvGetRequest(key=key.encode(), namespace=namespace.encode()))
        if answer.status.code == MISSING:
            return None
        _check(answer.status, f"cannot read {key}")
        return answer.value

    async def kv_put(self, key: str, value: bytes, *, namespace: str = "") -> None:
        """Write a value, overwriting an older one."""
        entry = pb.KvPutRequest(key=key.encode(), value=value, overwrite=True, namespace=namespace.encode())
        _check((await self._transport.call(KV_PUT, entry)).status, f"cannot write {key}")

    async def head_directories(self) -> HeadDirectories:
        """From the live head's node entry; if it lacks them, from Ray's KV store."""
        answer = await self._transport.call(GET_NODES, pb.GetAllNodeInfoRequest())
        _check(answer.status, "cannot list nodes")
        for node in answer.node_info_list:
            if node.is_head_node and node.state == pb.NodeInfo.ALIVE and node.temp_dir:
                return HeadDirectories(node.temp_dir, node.session_dir)
        temp_dir = await self.kv_get("temp_dir", namespace="session")
        session_dir = await self.kv_get("session_dir", namespace="session")
        return HeadDirectories(temp_dir.decode() if temp_dir else DEFAULT_TEMP_DIR, (session_dir or b"").decode())

    async def close(self) -> None:
        """Close the connection; calls in progress raise `ApiUnavailableError`."""
        await self._transport.close()


def _node_id(hexadecimal: str) -> bytes:
    """Decode an id; raises `ApiStatusError` for a wrong length, which crashes the GCS and the head (seen with Ray 2.60)."""
    node_id = bytes.fromhex(hexadecimal)
    if len(node_id) != NODE_ID_BYTES:
        raise ApiStatusError(
            400, "InvalidArgument", f"{hexadecimal!r} is not a node ID, which has {NODE_ID_BYTES} bytes"
        )
    return node_id


def _check(status: pb.Status, what: str) -> None:
    """Raise `ApiStatusError` if the status in a reply's body is an error."""
    if status.code:
        raise ApiStatusError(500, f"GcsStatus{status.code}", f"{what}: {status.message or 'no reason given'}")


# --- Ray's KV store --------------------------------------------------------------------------------------------------


async def is_autoscaler_v2(gcs: GcsClient) -> bool:
    """Whether the head was started for Autoscaler V2; only then does the GCS report all that V2 needs (AS §1.1)."""
    return await gcs.kv_get("__autoscaler_v2_enabled", namespace="__autoscaler") == b"1"


async def session_name(gcs: GcsClient) -> str:
    """The session label of Ray's metrics; empty until the head has written it."""
    return (await gcs.kv_get("session_name", namespace="session") or b"").decode()


async def announce_metrics(gcs: GcsClient, address: str) -> None:
    """Register `<address>:<port>` of the sidecar's metrics with Ray's Prometheus service discovery."""
    await gcs.kv_put("AutoscalerMetricsAddress", address.encode())
