"""A scripted GCS: as a `GcsClient` in this process, and as a real gRPC server on loopback.

`GcsWorld` is the state and the rules (reports and drains as Ray keeps them, AS:G-10 to AS:G-12); the test changes it at
any time and reads what was ordered. `fake_gcs(world)` gives a client without sockets, for virtual time; `GcsServer(world)`
serves the same over gRPC, with tokens and TLS, and can be away. Both speak through the product's messages, so that a lie
told by the world goes through the product's decoder in either form.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import grpc
import grpc.aio
from google.protobuf.message import Message

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.autoscaler.gcs import client
from raytide.autoscaler.gcs import gcs_pb2 as pb
from raytide.autoscaler.gcs.client import Gcs, Rpc
from raytide.autoscaler.gcs.messages import encode_demand, encode_gang
from raytide.autoscaler.model import (
    HEAD_TYPE,
    RESOURCE_UNIT_SCALING,
    Demand,
    Drained,
    DrainReason,
    Gang,
    NodeStatus,
    RayNode,
    amounts_of,
    labels_of,
)

RPCS = {
    rpc.path: rpc
    for rpc in (
        client.GET_STATE,
        client.REPORT,
        client.GET_STATUS,
        client.DRAIN,
        client.GET_NODES,
        client.CHECK_ALIVE,
        client.KV_GET,
        client.KV_PUT,
    )
}
UNKNOWN_NODE = "ab" * 28
"""The id of no node."""
REASONS = {number: reason for reason, number in client.REASONS.items()}
CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    409: grpc.StatusCode.ABORTED,
    501: grpc.StatusCode.UNIMPLEMENTED,
}


def node_id_of(instance_id: str) -> str:
    """28 bytes in hexadecimal, the same for the same pod."""
    return hashlib.sha224(instance_id.encode()).hexdigest()


@dataclass(frozen=True)
class DrainOrder:
    """One call of the autoscaler's DrainNode."""

    node_id: str
    reason: DrainReason
    message: str
    deadline_ms: int


def drain_as_ray(node: RayNode | None, reason: DrainReason) -> Drained:
    """Who is not there may go; who is busy stays, unless preempted (AS:G-12)."""
    if node is None or not node.is_alive or reason is DrainReason.PREEMPTION or node.status is NodeStatus.IDLE:
        return Drained(is_accepted=True)
    return Drained(is_accepted=False, message="The node is not idle: it runs leased workers.")


@dataclass
class GcsWorld:
    """State of the GCS, and the requests it received."""

    session: str = "session_1"
    ray_version: str = "2.60.0"
    temp_dir: str = "/tmp/ray"
    nodes: dict[str, RayNode] = field(default_factory=dict)
    """By node id."""
    tasks: list[Demand] = field(default_factory=list)
    gangs: list[Gang] = field(default_factory=list)
    constraint: list[Demand] | None = None
    lies: pb.ClusterResourceState = field(default_factory=pb.ClusterResourceState)
    """Merged into every answer as it is."""
    raw_state: bytes | None = None
    """Sent instead of any state, well formed or not (unknown fields, for instance)."""
    kv: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """By (namespace, key)."""
    version: int = 0
    kept: pb.AutoscalingState | None = None
    """The report that `ray status` shows."""
    reports: list[pb.AutoscalingState] = field(default_factory=list)
    drains: list[DrainOrder] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    """By method."""
    answer_drain: Callable[[RayNode | None, DrainReason], Drained] = drain_as_ray
    on_death: Callable[[RayNode], None] = lambda node: None
    """Told of every raylet that ends."""
    delay_s: float = 0.0
    errors: dict[str, ApiStatusError | ApiUnavailableError] = field(default_factory=dict)
    """By method; "*" for all."""
    is_away: bool = False
    token: str = ""
    """Asked for by the server."""

    # --- what a test does ---

    def add_node(
        self, instance_id: str, node_type: str = "", *, resources: dict[str, float] | None = None, **more: Any
    ) -> RayNode:
        """A node that is busy from now on, with one CPU by default; `more` are fields of RayNode."""
        total = {"CPU": 1.0} if resources is None else resources
        if node_type == HEAD_TYPE:
            total = {**total, "node:__internal_head__": 1.0}
        labels = more.pop("labels", {"ray.io/node-group": node_type} if node_type else {})
        node = RayNode(
            node_id=more.pop("node_id", node_id_of(instance_id)),
            status=more.pop("status", NodeStatus.RUNNING),
            instance_id=instance_id,
            node_type=node_type,
            total=amounts_of(total),
            available=more.pop("available", amounts_of(total)),
            labels=labels if isinstance(labels, tuple) else labels_of(labels),
            **more,
        )
        self.nodes[node.node_id] = node
        return node

    def node(self, instance_id: str) -> RayNode:
        """The newest of that pod."""
        return [node for node in self.nodes.values() if node.instance_id == instance_id][-1]

    def make_idle(self, instance_id: str, idle_ms: int = 600_000) -> None:
        """Nothing runs there."""
        node = self.node(instance_id)
        self.nodes[node.node_id] = replace(node, status=NodeStatus.IDLE, idle_ms=idle_ms, available=node.total)

    def make_busy(self, instance_id: str) -> None:
        """Everything it has is in use."""
        node = self.node(instance_id)
        self.nodes[node.node_id] = replace(node, status=NodeStatus.RUNNING, idle_ms=0, available=())

    def kill_node(self, instance_id: str) -> None:
        """Its raylet ends."""
        self._end(self.node(instance_id))

    def restart(self, session: str, *, is_persistent: bool = False) -> None:
        """Another GCS process: without persistence it knows nothing of before (AS §3.7)."""
        self.session, self.version, self.kept = session, 0, None
        self.constraint = None
        if not is_persistent:
            self.nodes.clear()
            self.tasks.clear()
            self.gangs.clear()
            self.kv.clear()

    # --- what the GCS does ---

    async def answer(self, rpc: Rpc[Any, Any], request: Any) -> Any:
        """As Ray does by default; raises Refused and Unavailable."""
        method = rpc.path.rpartition("/")[2]
        self.calls[method] += 1
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.is_away:
            raise ApiUnavailableError(f"{method}: connection refused", is_outcome_unknown=rpc.is_write)
        if error := self.errors.get(method) or self.errors.get("*"):
            raise error
        answers: dict[str, Callable[[Any], Message]] = {
            client.GET_STATE.path: self._state,
            client.REPORT.path: self._report,
            client.GET_STATUS.path: lambda _: pb.GetClusterStatusReply(autoscaling_state=self.kept),
            client.DRAIN.path: self._drain,
            client.GET_NODES.path: self._list_nodes,
            client.CHECK_ALIVE.path: lambda _: pb.CheckAliveReply(ray_version=self.ray_version),
            client.KV_GET.path: self._kv_get,
            client.KV_PUT.path: self._kv_put,
        }
        return answers[rpc.path](request)

    def _state(self, request: pb.GetClusterResourceStateRequest) -> pb.GetClusterResourceStateReply:
        if request.ByteSize():
            raise ApiStatusError(500, "Killed", "a state version was sent, which can kill a real GCS (AS:B-27)")
        self.version += 1
        if self.raw_state is not None:
            return pb.GetClusterResourceStateReply.FromString(self.raw_state)
        alive_first = sorted(self.nodes.values(), key=lambda node: not node.is_alive)
        constraint = [] if self.constraint is None else [_constraint(self.constraint)]
        state = pb.ClusterResourceState(
            cluster_resource_state_version=self.version,
            node_states=map(_node, alive_first),
            pending_resource_requests=map(encode_demand, self.tasks),
            pending_gang_resource_requests=map(encode_gang, self.gangs),
            cluster_resource_constraints=constraint,
            cluster_session_name=self.session,
        )
        state.MergeFrom(self.lies)
        return pb.GetClusterResourceStateReply(cluster_resource_state=state)

    def _report(self, request: pb.ReportAutoscalingStateRequest) -> pb.ReportAutoscalingStateReply:
        report = request.autoscaling_state
        self.reports.append(report)
        if self.kept is None or report.autoscaler_state_version >= self.kept.autoscaler_state_version:
            self.kept = report
        return pb.ReportAutoscalingStateReply()

    def _drain(self, request: pb.DrainNodeRequest) -> pb.DrainNodeReply:
        if request.deadline_timestamp_ms < 0:
            raise ApiStatusError(409, "Aborted", "the deadline is negative")
        reason, node = REASONS[request.reason], self.nodes.get(request.node_id.hex())
        self.drains.append(
            DrainOrder(request.node_id.hex(), reason, request.reason_message, request.deadline_timestamp_ms)
        )
        answer = self.answer_drain(node, reason)
        if answer.is_accepted and node is not None and node.is_alive:
            if reason is DrainReason.PREEMPTION:
                self.nodes[node.node_id] = replace(node, status=NodeStatus.DRAINING, idle_ms=0)
            else:
                self._end(node)
        return pb.DrainNodeReply(is_accepted=answer.is_accepted, rejection_reason_message=answer.message)

    def _end(self, node: RayNode) -> None:
        """A dead node keeps only ids, type and address (AS:G-2)."""
        self.nodes[node.node_id] = RayNode(
            node.node_id, NodeStatus.DEAD, node.instance_id, node.node_type, address=node.address
        )
        self.on_death(node)

    def _list_nodes(self, request: pb.GetAllNodeInfoRequest) -> pb.GetAllNodeInfoReply:
        del request
        return pb.GetAllNodeInfoReply(
            status=pb.Status(),
            node_info_list=[
                pb.NodeInfo(
                    node_id=bytes.fromhex(node.node_id),
                    state=pb.NodeInfo.ALIVE if node.is_alive else pb.NodeInfo.DEAD,
                    is_head_node=node.node_type == HEAD_TYPE,
                    temp_dir=self.temp_dir,
                    session_dir=f"{self.temp_dir}/{self.session}",
                )
                for node in self.nodes.values()
            ],
        )

    def _kv_get(self, request: pb.KvGetRequest) -> pb.KvGetReply:
        value = self.kv.get((request.namespace.decode(), request.key.decode()))
        if value is None:
            return pb.KvGetReply(status=pb.Status(code=client.MISSING, message="Failed to find the key"))
        return pb.KvGetReply(status=pb.Status(), value=value)

    def _kv_put(self, request: pb.KvPutRequest) -> pb.KvPutReply:
        self.kv[request.namespace.decode(), request.key.decode()] = request.value
        return pb.KvPutReply(status=pb.Status())


def _constraint(demands: Iterable[Demand]) -> pb.ClusterResourceConstraint:
    return pb.ClusterResourceConstraint(resource_requests=map(encode_demand, demands))


def _node(node: RayNode) -> pb.NodeState:
    return pb.NodeState(
        node_id=bytes.fromhex(node.node_id),
        instance_id=node.instance_id,
        ray_node_type_name=node.node_type,
        available_resources={name: amount / RESOURCE_UNIT_SCALING for name, amount in node.available},
        total_resources={name: amount / RESOURCE_UNIT_SCALING for name, amount in node.total},
        dynamic_labels=dict(node.dynamic_labels),
        status=node.status.value,
        idle_duration_ms=node.idle_ms,
        node_ip_address=node.address,
        labels=dict(node.labels),
    )


# --- without sockets -------------------------------------------------------------------------------------------------


class WorldWire:
    """A wire that ends in the world."""

    def __init__(self, world: GcsWorld, timeout_s: float) -> None:
        self.world = world
        self.timeout_s = timeout_s

    async def call(self, rpc: Rpc[Any, Any], request: Any) -> Any:
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self.world.answer(rpc, request)
        except TimeoutError:
            raise ApiUnavailableError(f"{rpc.path}: Deadline Exceeded", is_outcome_unknown=rpc.is_write) from None

    async def close(self) -> None:
        """Nothing is open."""


def fake_gcs(world: GcsWorld, *, timeout_s: float = 10.0) -> Gcs:
    """A client of the world in this process."""
    return Gcs(WorldWire(world, timeout_s))


# --- over gRPC -------------------------------------------------------------------------------------------------------


class GcsServer(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The world behind a real port of 127.0.0.1: `async with GcsServer(world) as server: … server.address`."""

    def __init__(self, world: GcsWorld, *, credentials: grpc.ServerCredentials | None = None) -> None:
        self.world = world
        self.port = 0
        self._credentials = credentials
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before."""
        self._server = grpc.aio.server(handlers=(self,), options=(("grpc.so_reuseport", 0),))
        address = f"127.0.0.1:{self.port}"
        self.port = (
            self._server.add_secure_port(address, self._credentials)
            if self._credentials
            else self._server.add_insecure_port(address)
        )
        await self._server.start()

    async def stop(self) -> None:
        """Stop: the port refuses connections."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(grace=None)

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a path, called by gRPC."""
        rpc = RPCS.get(handler_call_details.method)
        if rpc is None:
            return None

        async def serve(request: Message, context: grpc.aio.ServicerContext) -> Message:
            metadata = dict(context.invocation_metadata() or ())
            if self.world.token and metadata.get("authorization") != f"Bearer {self.world.token}":
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken: Authentication token is wrong")
            try:
                return await self.world.answer(rpc, request)
            except ApiStatusError as error:
                await context.abort(CODES.get(error.status, grpc.StatusCode.DATA_LOSS), error.message)
            except ApiUnavailableError as unavailable:
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(unavailable))
            raise AssertionError

        return grpc.unary_unary_rpc_method_handler(
            serve, request_deserializer=rpc.asked.FromString, response_serializer=rpc.answer.SerializeToString
        )
