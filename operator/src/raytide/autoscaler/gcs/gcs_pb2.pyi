from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LabelName(_message.Message):
    __slots__ = ("label_name", "label_value")
    LABEL_NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_VALUE_FIELD_NUMBER: _ClassVar[int]
    label_name: str
    label_value: str
    def __init__(self, label_name: _Optional[str] = ..., label_value: _Optional[str] = ...) -> None: ...

class PlacementConstraint(_message.Message):
    __slots__ = ("anti_affinity", "affinity")
    ANTI_AFFINITY_FIELD_NUMBER: _ClassVar[int]
    AFFINITY_FIELD_NUMBER: _ClassVar[int]
    anti_affinity: LabelName
    affinity: LabelName
    def __init__(self, anti_affinity: _Optional[_Union[LabelName, _Mapping]] = ..., affinity: _Optional[_Union[LabelName, _Mapping]] = ...) -> None: ...

class LabelConstraint(_message.Message):
    __slots__ = ("label_key", "operator", "label_values")
    class Operator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[LabelConstraint.Operator]
        IN: _ClassVar[LabelConstraint.Operator]
        NOT_IN: _ClassVar[LabelConstraint.Operator]
    UNSPECIFIED: LabelConstraint.Operator
    IN: LabelConstraint.Operator
    NOT_IN: LabelConstraint.Operator
    LABEL_KEY_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    LABEL_VALUES_FIELD_NUMBER: _ClassVar[int]
    label_key: str
    operator: LabelConstraint.Operator
    label_values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, label_key: _Optional[str] = ..., operator: _Optional[_Union[LabelConstraint.Operator, str]] = ..., label_values: _Optional[_Iterable[str]] = ...) -> None: ...

class LabelSelector(_message.Message):
    __slots__ = ("label_constraints",)
    LABEL_CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    label_constraints: _containers.RepeatedCompositeFieldContainer[LabelConstraint]
    def __init__(self, label_constraints: _Optional[_Iterable[_Union[LabelConstraint, _Mapping]]] = ...) -> None: ...

class ResourceRequest(_message.Message):
    __slots__ = ("resources_bundle", "placement_constraints", "label_selectors")
    class ResourcesBundleEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RESOURCES_BUNDLE_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTORS_FIELD_NUMBER: _ClassVar[int]
    resources_bundle: _containers.ScalarMap[str, float]
    placement_constraints: _containers.RepeatedCompositeFieldContainer[PlacementConstraint]
    label_selectors: _containers.RepeatedCompositeFieldContainer[LabelSelector]
    def __init__(self, resources_bundle: _Optional[_Mapping[str, float]] = ..., placement_constraints: _Optional[_Iterable[_Union[PlacementConstraint, _Mapping]]] = ..., label_selectors: _Optional[_Iterable[_Union[LabelSelector, _Mapping]]] = ...) -> None: ...

class ResourceRequestByCount(_message.Message):
    __slots__ = ("request", "count")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    request: ResourceRequest
    count: int
    def __init__(self, request: _Optional[_Union[ResourceRequest, _Mapping]] = ..., count: _Optional[int] = ...) -> None: ...

class LocalityConstraint(_message.Message):
    __slots__ = ("label_name", "placement_strategy")
    class PlacementStrategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PACK: _ClassVar[LocalityConstraint.PlacementStrategy]
        SPREAD: _ClassVar[LocalityConstraint.PlacementStrategy]
        STRICT_PACK: _ClassVar[LocalityConstraint.PlacementStrategy]
        STRICT_SPREAD: _ClassVar[LocalityConstraint.PlacementStrategy]
    PACK: LocalityConstraint.PlacementStrategy
    SPREAD: LocalityConstraint.PlacementStrategy
    STRICT_PACK: LocalityConstraint.PlacementStrategy
    STRICT_SPREAD: LocalityConstraint.PlacementStrategy
    LABEL_NAME_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    label_name: str
    placement_strategy: LocalityConstraint.PlacementStrategy
    def __init__(self, label_name: _Optional[str] = ..., placement_strategy: _Optional[_Union[LocalityConstraint.PlacementStrategy, str]] = ...) -> None: ...

class LocalityRequirement(_message.Message):
    __slots__ = ("locality_constraint", "label_selector")
    LOCALITY_CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    locality_constraint: LocalityConstraint
    label_selector: LabelSelector
    def __init__(self, locality_constraint: _Optional[_Union[LocalityConstraint, _Mapping]] = ..., label_selector: _Optional[_Union[LabelSelector, _Mapping]] = ...) -> None: ...

class BundleSelector(_message.Message):
    __slots__ = ("resource_requests", "locality_requirement")
    RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    LOCALITY_REQUIREMENT_FIELD_NUMBER: _ClassVar[int]
    resource_requests: _containers.RepeatedCompositeFieldContainer[ResourceRequest]
    locality_requirement: LocalityRequirement
    def __init__(self, resource_requests: _Optional[_Iterable[_Union[ResourceRequest, _Mapping]]] = ..., locality_requirement: _Optional[_Union[LocalityRequirement, _Mapping]] = ...) -> None: ...

class GangResourceRequest(_message.Message):
    __slots__ = ("requests", "details", "bundle_selectors")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_SELECTORS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[ResourceRequest]
    details: str
    bundle_selectors: _containers.RepeatedCompositeFieldContainer[BundleSelector]
    def __init__(self, requests: _Optional[_Iterable[_Union[ResourceRequest, _Mapping]]] = ..., details: _Optional[str] = ..., bundle_selectors: _Optional[_Iterable[_Union[BundleSelector, _Mapping]]] = ...) -> None: ...

class ClusterResourceConstraint(_message.Message):
    __slots__ = ("resource_requests",)
    RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    resource_requests: _containers.RepeatedCompositeFieldContainer[ResourceRequestByCount]
    def __init__(self, resource_requests: _Optional[_Iterable[_Union[ResourceRequestByCount, _Mapping]]] = ...) -> None: ...

class NodeState(_message.Message):
    __slots__ = ("node_id", "instance_id", "ray_node_type_name", "available_resources", "total_resources", "dynamic_labels", "status", "idle_duration_ms", "node_ip_address", "labels")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[NodeState.Status]
        RUNNING: _ClassVar[NodeState.Status]
        DEAD: _ClassVar[NodeState.Status]
        IDLE: _ClassVar[NodeState.Status]
        DRAINING: _ClassVar[NodeState.Status]
    UNSPECIFIED: NodeState.Status
    RUNNING: NodeState.Status
    DEAD: NodeState.Status
    IDLE: NodeState.Status
    DRAINING: NodeState.Status
    class AvailableResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class TotalResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class DynamicLabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RAY_NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_LABELS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    IDLE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    NODE_IP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    instance_id: str
    ray_node_type_name: str
    available_resources: _containers.ScalarMap[str, float]
    total_resources: _containers.ScalarMap[str, float]
    dynamic_labels: _containers.ScalarMap[str, str]
    status: NodeState.Status
    idle_duration_ms: int
    node_ip_address: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, node_id: _Optional[bytes] = ..., instance_id: _Optional[str] = ..., ray_node_type_name: _Optional[str] = ..., available_resources: _Optional[_Mapping[str, float]] = ..., total_resources: _Optional[_Mapping[str, float]] = ..., dynamic_labels: _Optional[_Mapping[str, str]] = ..., status: _Optional[_Union[NodeState.Status, str]] = ..., idle_duration_ms: _Optional[int] = ..., node_ip_address: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ClusterResourceState(_message.Message):
    __slots__ = ("cluster_resource_state_version", "node_states", "pending_resource_requests", "pending_gang_resource_requests", "cluster_resource_constraints", "cluster_session_name")
    CLUSTER_RESOURCE_STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_STATES_FIELD_NUMBER: _ClassVar[int]
    PENDING_RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PENDING_GANG_RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_RESOURCE_CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_SESSION_NAME_FIELD_NUMBER: _ClassVar[int]
    cluster_resource_state_version: int
    node_states: _containers.RepeatedCompositeFieldContainer[NodeState]
    pending_resource_requests: _containers.RepeatedCompositeFieldContainer[ResourceRequestByCount]
    pending_gang_resource_requests: _containers.RepeatedCompositeFieldContainer[GangResourceRequest]
    cluster_resource_constraints: _containers.RepeatedCompositeFieldContainer[ClusterResourceConstraint]
    cluster_session_name: str
    def __init__(self, cluster_resource_state_version: _Optional[int] = ..., node_states: _Optional[_Iterable[_Union[NodeState, _Mapping]]] = ..., pending_resource_requests: _Optional[_Iterable[_Union[ResourceRequestByCount, _Mapping]]] = ..., pending_gang_resource_requests: _Optional[_Iterable[_Union[GangResourceRequest, _Mapping]]] = ..., cluster_resource_constraints: _Optional[_Iterable[_Union[ClusterResourceConstraint, _Mapping]]] = ..., cluster_session_name: _Optional[str] = ...) -> None: ...

class GetClusterResourceStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetClusterResourceStateReply(_message.Message):
    __slots__ = ("cluster_resource_state",)
    CLUSTER_RESOURCE_STATE_FIELD_NUMBER: _ClassVar[int]
    cluster_resource_state: ClusterResourceState
    def __init__(self, cluster_resource_state: _Optional[_Union[ClusterResourceState, _Mapping]] = ...) -> None: ...

class PendingInstanceRequest(_message.Message):
    __slots__ = ("ray_node_type_name", "count", "request_ts")
    RAY_NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TS_FIELD_NUMBER: _ClassVar[int]
    ray_node_type_name: str
    count: int
    request_ts: int
    def __init__(self, ray_node_type_name: _Optional[str] = ..., count: _Optional[int] = ..., request_ts: _Optional[int] = ...) -> None: ...

class PendingInstance(_message.Message):
    __slots__ = ("ray_node_type_name", "instance_id", "ip_address", "details")
    RAY_NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    IP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    ray_node_type_name: str
    instance_id: str
    ip_address: str
    details: str
    def __init__(self, ray_node_type_name: _Optional[str] = ..., instance_id: _Optional[str] = ..., ip_address: _Optional[str] = ..., details: _Optional[str] = ...) -> None: ...

class FailedInstanceRequest(_message.Message):
    __slots__ = ("ray_node_type_name", "count", "reason", "start_ts", "failed_ts")
    RAY_NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    START_TS_FIELD_NUMBER: _ClassVar[int]
    FAILED_TS_FIELD_NUMBER: _ClassVar[int]
    ray_node_type_name: str
    count: int
    reason: str
    start_ts: int
    failed_ts: int
    def __init__(self, ray_node_type_name: _Optional[str] = ..., count: _Optional[int] = ..., reason: _Optional[str] = ..., start_ts: _Optional[int] = ..., failed_ts: _Optional[int] = ...) -> None: ...

class AutoscalingState(_message.Message):
    __slots__ = ("last_seen_cluster_resource_state_version", "autoscaler_state_version", "pending_instance_requests", "infeasible_resource_requests", "infeasible_gang_resource_requests", "infeasible_cluster_resource_constraints", "pending_instances", "failed_instance_requests")
    LAST_SEEN_CLUSTER_RESOURCE_STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    AUTOSCALER_STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PENDING_INSTANCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    INFEASIBLE_RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    INFEASIBLE_GANG_RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    INFEASIBLE_CLUSTER_RESOURCE_CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    PENDING_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    FAILED_INSTANCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    last_seen_cluster_resource_state_version: int
    autoscaler_state_version: int
    pending_instance_requests: _containers.RepeatedCompositeFieldContainer[PendingInstanceRequest]
    infeasible_resource_requests: _containers.RepeatedCompositeFieldContainer[ResourceRequest]
    infeasible_gang_resource_requests: _containers.RepeatedCompositeFieldContainer[GangResourceRequest]
    infeasible_cluster_resource_constraints: _containers.RepeatedCompositeFieldContainer[ClusterResourceConstraint]
    pending_instances: _containers.RepeatedCompositeFieldContainer[PendingInstance]
    failed_instance_requests: _containers.RepeatedCompositeFieldContainer[FailedInstanceRequest]
    def __init__(self, last_seen_cluster_resource_state_version: _Optional[int] = ..., autoscaler_state_version: _Optional[int] = ..., pending_instance_requests: _Optional[_Iterable[_Union[PendingInstanceRequest, _Mapping]]] = ..., infeasible_resource_requests: _Optional[_Iterable[_Union[ResourceRequest, _Mapping]]] = ..., infeasible_gang_resource_requests: _Optional[_Iterable[_Union[GangResourceRequest, _Mapping]]] = ..., infeasible_cluster_resource_constraints: _Optional[_Iterable[_Union[ClusterResourceConstraint, _Mapping]]] = ..., pending_instances: _Optional[_Iterable[_Union[PendingInstance, _Mapping]]] = ..., failed_instance_requests: _Optional[_Iterable[_Union[FailedInstanceRequest, _Mapping]]] = ...) -> None: ...

class ReportAutoscalingStateRequest(_message.Message):
    __slots__ = ("autoscaling_state",)
    AUTOSCALING_STATE_FIELD_NUMBER: _ClassVar[int]
    autoscaling_state: AutoscalingState
    def __init__(self, autoscaling_state: _Optional[_Union[AutoscalingState, _Mapping]] = ...) -> None: ...

class ReportAutoscalingStateReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetClusterStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetClusterStatusReply(_message.Message):
    __slots__ = ("autoscaling_state",)
    AUTOSCALING_STATE_FIELD_NUMBER: _ClassVar[int]
    autoscaling_state: AutoscalingState
    def __init__(self, autoscaling_state: _Optional[_Union[AutoscalingState, _Mapping]] = ...) -> None: ...

class DrainNodeRequest(_message.Message):
    __slots__ = ("node_id", "reason", "reason_message", "deadline_timestamp_ms")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[DrainNodeRequest.Reason]
        IDLE_TERMINATION: _ClassVar[DrainNodeRequest.Reason]
        PREEMPTION: _ClassVar[DrainNodeRequest.Reason]
    UNSPECIFIED: DrainNodeRequest.Reason
    IDLE_TERMINATION: DrainNodeRequest.Reason
    PREEMPTION: DrainNodeRequest.Reason
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REASON_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    reason: DrainNodeRequest.Reason
    reason_message: str
    deadline_timestamp_ms: int
    def __init__(self, node_id: _Optional[bytes] = ..., reason: _Optional[_Union[DrainNodeRequest.Reason, str]] = ..., reason_message: _Optional[str] = ..., deadline_timestamp_ms: _Optional[int] = ...) -> None: ...

class DrainNodeReply(_message.Message):
    __slots__ = ("is_accepted", "rejection_reason_message")
    IS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REJECTION_REASON_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    is_accepted: bool
    rejection_reason_message: str
    def __init__(self, is_accepted: _Optional[bool] = ..., rejection_reason_message: _Optional[str] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class GetAllNodeInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeInfo(_message.Message):
    __slots__ = ("node_id", "state", "is_head_node", "temp_dir", "session_dir")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ALIVE: _ClassVar[NodeInfo.State]
        DEAD: _ClassVar[NodeInfo.State]
    ALIVE: NodeInfo.State
    DEAD: NodeInfo.State
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    IS_HEAD_NODE_FIELD_NUMBER: _ClassVar[int]
    TEMP_DIR_FIELD_NUMBER: _ClassVar[int]
    SESSION_DIR_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    state: NodeInfo.State
    is_head_node: bool
    temp_dir: str
    session_dir: str
    def __init__(self, node_id: _Optional[bytes] = ..., state: _Optional[_Union[NodeInfo.State, str]] = ..., is_head_node: _Optional[bool] = ..., temp_dir: _Optional[str] = ..., session_dir: _Optional[str] = ...) -> None: ...

class GetAllNodeInfoReply(_message.Message):
    __slots__ = ("status", "node_info_list")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NODE_INFO_LIST_FIELD_NUMBER: _ClassVar[int]
    status: Status
    node_info_list: _containers.RepeatedCompositeFieldContainer[NodeInfo]
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ..., node_info_list: _Optional[_Iterable[_Union[NodeInfo, _Mapping]]] = ...) -> None: ...

class CheckAliveRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CheckAliveReply(_message.Message):
    __slots__ = ("status", "ray_version")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RAY_VERSION_FIELD_NUMBER: _ClassVar[int]
    status: Status
    ray_version: str
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ..., ray_version: _Optional[str] = ...) -> None: ...

class KvGetRequest(_message.Message):
    __slots__ = ("key", "namespace")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    namespace: bytes
    def __init__(self, key: _Optional[bytes] = ..., namespace: _Optional[bytes] = ...) -> None: ...

class KvGetReply(_message.Message):
    __slots__ = ("status", "value")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    status: Status
    value: bytes
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ..., value: _Optional[bytes] = ...) -> None: ...

class KvPutRequest(_message.Message):
    __slots__ = ("key", "value", "overwrite", "namespace")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    overwrite: bool
    namespace: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., overwrite: _Optional[bool] = ..., namespace: _Optional[bytes] = ...) -> None: ...

class KvPutReply(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    def __init__(self, status: _Optional[_Union[Status, _Mapping]] = ...) -> None: ...
