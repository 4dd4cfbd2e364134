"""What can the sidecar ask Ray's GCS, and tell it?

`Gcs` is the list of questions and orders, in the autoscaler's words; how a message travels is a `Wire`'s business
(gcs_channel.py over gRPC, tests in one process). Every call either answers, or raises `Unavailable` (nobody there, too
slow, starting: try again) or `Refused` (it said no). The cluster's state is always asked for without a version, since
one from the future kills the GCS (AS:B-27). Called by the loop; rules AS §1.4.
"""

import logging
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

from google.protobuf.message import Message

from raytide.api.errors import Refused
from raytide.autoscaler import gcs_pb2 as pb
from raytide.autoscaler.gcs_messages import Memory, decode_state, encode_report
from raytide.autoscaler.model import Demand, Drained, DrainReason, GcsState, HeadDirectories, Report

log = logging.getLogger(__name__)

Asked = TypeVar("Asked", bound=Message)
Answer = TypeVar("Answer", bound=Message)

MISSING: Final = 17
"""The status in an answer's body for a key that is not there."""
NODE_ID_BYTES: Final = 28
DEFAULT_TEMP_DIR: Final = "/tmp/ray"  # noqa: S108 - where Ray puts it unless told otherwise
REASONS: Final = {
    DrainReason.IDLE_TERMINATION: pb.DrainNodeRequest.IDLE_TERMINATION,
    DrainReason.PREEMPTION: pb.DrainNodeRequest.PREEMPTION,
}


class GcsClient(Protocol):
    """What the loop needs of the GCS; every call raises `Unavailable` or `Refused`."""

    async def check_alive(self) -> str:
        """Ray's version."""

    async def state(self) -> GcsState:
        """All that Ray says now."""

    async def report(self, report: Report) -> None:
        """Replace what `ray status` shows of us; dropped in silence if its version is lower than the last (AS:G-10)."""

    async def reported_version(self) -> int:
        """Of the report that the GCS keeps; 0 if there is none (AS:B-5)."""

    async def drain(self, node_id: str, *, reason: DrainReason, message: str, deadline_ms: int = 0) -> Drained:
        """Ask a node to leave; the deadline is in milliseconds since the epoch, 0 is none."""

    async def kv_get(self, key: str, *, namespace: str = "") -> bytes | None:
        """A value, or None if there is none."""

    async def kv_put(self, key: str, value: bytes, *, namespace: str = "") -> None:
        """Write a value, over an older one."""

    async def head_directories(self) -> HeadDirectories:
        """Where Ray on the head keeps its files."""

    async def close(self) -> None:
        """Hang up; calls under way end as Unavailable."""


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Asked, Answer]):
    """One method of the GCS."""

    path: str
    asked: type[Asked]
    answer: type[Answer]
    is_write: bool = False


class Wire(Protocol):
    """How one message gets there and another back."""

    async def call(self, rpc: Rpc[Asked, Answer], request: Asked) -> Answer:
        """Within a deadline; raises Unavailable or Refused."""

    async def close(self) -> None:
        """No more calls."""


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
    """What the last call of `request_resources()` that the GCS told asked for, and in which session."""

    session: str = ""
    constraint: tuple[Demand, ...] | None = None

    def after(self, state: GcsState) -> "LastRequest":
        """It counts until the next call, or the next session.

        The GCS keeps it in its memory only and never takes it back: an empty call leaves an empty one. So one that is not
        there any more was lost when the GCS started again (AS:G-9).
        """
        if state.constraint is not None or not state.session or state.session != self.session:
            return LastRequest(state.session, state.constraint)
        return self


class Gcs:
    """A `GcsClient` over any wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._memory: Memory = {}
        self._requested = LastRequest()
        self._is_request_lost = False

    async def check_alive(self) -> str:
        """Ray's version."""
        answer = await self._wire.call(CHECK_ALIVE, pb.CheckAliveRequest())
        _check(answer.status, "the GCS is not well")
        return answer.ray_version

    async def state(self) -> GcsState:
        """All that Ray says now."""
        state = decode_state(await self._wire.call(GET_STATE, pb.GetClusterResourceStateRequest()), self._memory)
        self._requested = self._requested.after(state)
        is_lost = state.constraint != self._requested.constraint
        if is_lost and not self._is_request_lost:
            log.info(
                "the GCS has forgotten what request_resources() asked for; the last call counts until the next one"
            )
        self._is_request_lost = is_lost
        return replace(state, constraint=self._requested.constraint) if is_lost else state

    async def report(self, report: Report) -> None:
        """Replace what `ray status` shows of us."""
        await self._wire.call(REPORT, encode_report(report))

    async def reported_version(self) -> int:
        """Of the report that the GCS keeps; 0 if there is none."""
        answer = await self._wire.call(GET_STATUS, pb.GetClusterStatusRequest())
        return answer.autoscaling_state.autoscaler_state_version

    async def drain(self, node_id: str, *, reason: DrainReason, message: str, deadline_ms: int = 0) -> Drained:
        """Ask a node to leave."""
        order = pb.DrainNodeRequest(
            node_id=_node_id(node_id),
            reason=REASONS[reason],
            reason_message=message,
            deadline_timestamp_ms=deadline_ms,
        )
        answer = await self._wire.call(DRAIN, order)
        return Drained(answer.is_accepted, answer.rejection_reason_message)

    async def kv_get(self, key: str, *, namespace: str = "") -> bytes | None:
        """A value, or None if there is none."""
        answer = await self._wire.call(KV_GET, pb.KvGetRequest(key=key.encode(), namespace=namespace.encode()))
        if answer.status.code == MISSING:
            return None
        _check(answer.status, f"{key} was not read")
        return answer.value

    async def kv_put(self, key: str, value: bytes, *, namespace: str = "") -> None:
        """Write a value, over an older one."""
        entry = pb.KvPutRequest(key=key.encode(), value=value, overwrite=True, namespace=namespace.encode())
        _check((await self._wire.call(KV_PUT, entry)).status, f"{key} was not written")

    async def head_directories(self) -> HeadDirectories:
        """From the living head's entry; a Ray that does not say it there has written it into its KV store."""
        answer = await self._wire.call(GET_NODES, pb.GetAllNodeInfoRequest())
        _check(answer.status, "the nodes were not listed")
        for node in answer.node_info_list:
            if node.is_head_node and node.state == pb.NodeInfo.ALIVE and node.temp_dir:
                return HeadDirectories(node.temp_dir, node.session_dir)
        temp_dir = await self.kv_get("temp_dir", namespace="session")
        session_dir = await self.kv_get("session_dir", namespace="session")
        return HeadDirectories(temp_dir.decode() if temp_dir else DEFAULT_TEMP_DIR, (session_dir or b"").decode())

    async def close(self) -> None:
        """Hang up; calls under way end as Unavailable."""
        await self._wire.close()


def _node_id(hexadecimal: str) -> bytes:
    """The GCS aborts, and the head with it, when an id has another length (seen with Ray 2.60)."""
    node_id = bytes.fromhex(hexadecimal)
    if len(node_id) != NODE_ID_BYTES:
        raise Refused(400, "InvalidArgument", f"{hexadecimal!r} is no node id: {NODE_ID_BYTES} bytes are")
    return node_id


def _check(status: pb.Status, what: str) -> None:
    """Whether the body of an answer says yes."""
    if status.code:
        raise Refused(500, f"GcsStatus{status.code}", f"{what}: {status.message or 'no reason given'}")


# --- what Ray keeps in its KV store ----------------------------------------------------------------------------------


async def is_autoscaler_v2(gcs: GcsClient) -> bool:
    """Whether the head was started for Autoscaler V2; only then does it tell all that a V2 needs (AS §1.1)."""
    return await gcs.kv_get("__autoscaler_v2_enabled", namespace="__autoscaler") == b"1"


async def session_name(gcs: GcsClient) -> str:
    """The label of Ray's metrics; empty while the head has not written it."""
    return (await gcs.kv_get("session_name", namespace="session") or b"").decode()


async def announce_metrics(gcs: GcsClient, address: str) -> None:
    """Tell Ray's discovery of Prometheus targets where ours are, `<address>:<port>`."""
    await gcs.kv_put("AutoscalerMetricsAddress", address.encode())
