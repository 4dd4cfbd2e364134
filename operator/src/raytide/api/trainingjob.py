"""Model of the TrainingJob resource.

Parses the custom resource from JSON into a frozen model of the fields that the operator reads, in every spelling in use
(TJ §2.1, §3 row 20); volumes, mounts, probes and templates stay opaque (D13). Defaults are upstream's. Counts are as
written, clamped only to the bounds of api/limits.py; validation checks them. A value of the wrong type raises
pydantic's ValidationError, whose location is the field's path. Used by trainingjob/ and fairshare/.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AliasChoices, Field, PlainValidator, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from raytide.api.base_model import ObjectMeta, Value
from raytide.api.clamp_numbers import clamp_numbers
from raytide.api.limits import MAX_INSTANCES, MAX_PORTS, MAX_SIZES
from raytide.api.meta import Key, Manifest
from raytide.api.sharing_record import SharingRecord, parse_record
from raytide.api.trainingjob_constants import MASTER, PSERVER, SHARING_ANNOTATION, TRAINER
from raytide.api.violations import Violation

DEFAULT_IMAGE: Final = "paddlepaddle/paddlecloud-job"
DEFAULT_PORT: Final = 7164
LONGEST_PENDING_S: Final = 7 * 86_400
"""The most that `pendingTimeoutSeconds` may be."""


def _spelled(*names: str) -> AliasChoices:
    return AliasChoices(*names)


def _amount(given: Any) -> Any:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise PydanticCustomError("amount", "must be a quantity, such as 500m, 2 or 1Gi")
    return given


def _command(given: Any) -> Any:
    if isinstance(given, str):
        return given
    if isinstance(given, list | tuple) and all(isinstance(word, str) for word in given):
        return tuple(given)
    raise PydanticCustomError("command", "must be a list of words, or one line for a shell")


Amount: TypeAlias = Annotated[str | int | float, PlainValidator(_amount)]
"""A quantity as written; validation checks the text. One error per wrong type, where a union would report three."""
Command: TypeAlias = Annotated[tuple[str, ...] | str, PlainValidator(_command)]


class Resources(Value):
    """`resources` as written: quantities are text or numbers."""

    requests: Mapping[str, Amount] = Field(default_factory=dict)
    limits: Mapping[str, Amount] = Field(default_factory=dict)


class RoleSpec(Value):
    """Fields common to master, pserver and trainer."""

    entrypoint: str = ""
    """A shell line; pservers without one run the trainers', a master without one runs its image's command."""
    resources: Resources = Resources()
    env: tuple[Manifest, ...] = ()
    envs: Mapping[str, str] = Field(default_factory=dict)
    node_selector: Mapping[str, str] = Field(
        default_factory=dict, validation_alias=_spelled("nodeSelector", "node_selector")
    )
    tolerations: tuple[Manifest, ...] = ()
    grace_period_seconds: int | None = Field(
        default=None, validation_alias=_spelled("gracePeriodSeconds", "grace_period_seconds")
    )
    pre_stop_cmd: Command = Field(default=(), validation_alias=_spelled("preStopCmd", "pre_stop_cmd"))
    liveness_probe: Manifest | None = Field(default=None, validation_alias=_spelled("livenessProbe", "liveness_probe"))
    readiness_probe: Manifest | None = Field(
        default=None, validation_alias=_spelled("readinessProbe", "readiness_probe")
    )
    image_pull_secrets: tuple[Manifest, ...] = ()
    template: Manifest | None = None
    """A PodTemplateSpec, merged over the built pod: containers by name, the rest as in pod_template_merge.py."""


class InstancesSpec(RoleSpec):
    """A role with a minimum and a maximum number of instances."""

    min_instance: int = Field(default=0, validation_alias=_spelled("min-instance", "minInstance"))
    max_instance: int | None = Field(default=None, validation_alias=_spelled("max-instance", "maxInstance"))
    """None: the same as the minimum."""

    @property
    def ceiling(self) -> int:
        """The maximum number of instances."""
        return self.min_instance if self.max_instance is None else self.max_instance

    def clamp(self, count: int) -> int:
        """The number limited to minimum and maximum; the maximum wins where it is below the minimum."""
        return min(self.ceiling, max(self.min_instance, count))


class TrainerSpec(InstancesSpec):
    """`trainer`."""

    workspace: str = ""
    passes: int | None = None
    replicas: int | None = None
    """The current desired size, written by fair sharing or through `scale`; not clamped to minimum and maximum."""


class PserverScaling(Value):
    """`pserver.scaling`: whether the number of parameter servers follows that of trainers (TJ §3 row 4)."""

    mode: Literal["Fixed", "Ratio"] = "Fixed"
    trainers_per_pserver: int = 1


class PserverSpec(InstancesSpec):
    """`pserver`; `scaling` given as a string is the mode."""

    scaling: PserverScaling = PserverScaling()

    @field_validator("scaling", mode="before")
    @classmethod
    def _bare_mode(cls, given: Any) -> Any:
        return {"mode": given} if isinstance(given, str) else given

    @property
    def is_by_ratio(self) -> bool:
        """Whether the number of parameter servers follows that of the trainers."""
        return self.scaling.mode == "Ratio"

    @property
    def trainers_per_pserver(self) -> int:
        """Number of trainers per parameter server."""
        return self.scaling.trainers_per_pserver

    def count_for(self, trainers: int) -> int:
        """Number of parameter servers for this number of trainers."""
        if not self.is_by_ratio:
            return self.min_instance
        return self.clamp(-(-trainers // max(1, self.trainers_per_pserver)))


class ScalingSpec(Value):
    """`scaling`: how the job takes part in sharing (TJ §8). Times are in seconds."""

    enabled: bool = True
    step: int = 1
    allowed_sizes: tuple[int, ...] = Field(default=(), max_length=MAX_SIZES)
    grow_cooldown_seconds: int = 30
    shrink_cooldown_seconds: int = 10
    min_runtime_seconds: int = 0
    rebalance: bool = True
    yield_to_pods: bool = False
    """Whether it is scaled down for pods of other workloads with a higher priority (TJ §3 row 6c)."""
    accounting: Literal["Limits", "Requests"] = "Limits"


class PaddleAnnotations(Value):
    """`spec.annotations` of Paddle's last operator; its other keys are reported as unsupported."""

    walltime: int = 0
    """Seconds from the start after which the job fails; 0: no deadline."""


class TrainingJobSpec(Value):
    """`spec`. For `image`, `port` and the port counts, zero or an empty string means the default, as upstream."""

    image: str = DEFAULT_IMAGE
    port: int = DEFAULT_PORT
    ports_num: int = Field(default=1, validation_alias=_spelled("ports_num", "portsNum"))
    ports_num_for_sparse: int = Field(default=1, validation_alias=_spelled("ports_num_for_sparse", "portsNumForSparse"))
    fault_tolerant: bool | None = Field(default=None, validation_alias=_spelled("fault_tolerant", "faultTolerant"))
    passes: int | None = None
    volumes: tuple[Manifest, ...] = ()
    volume_mounts: tuple[Manifest, ...] = Field(default=(), validation_alias=_spelled("VolumeMounts", "volumeMounts"))
    host_network: bool = Field(default=False, validation_alias=_spelled("host_network", "hostNetwork"))
    image_pull_secrets: tuple[Manifest, ...] = ()
    image_pull_policy: str = ""
    scheduler_name: str = ""
    pod_group_name: str = ""
    framework: Literal["paddle", "torchrun", "generic"] = "paddle"
    priority_class_name: str = ""
    start_policy: Literal["Gang", "Optimistic"] | None = None
    """None: gang for jobs with GPUs, optimistic for others (TJ §3 row 11)."""
    pending_timeout_seconds: int = 600
    """After this time a job whose minimum has not started releases its capacity; see `pending_timeout_s`."""
    scaling: ScalingSpec = ScalingSpec()
    restart_policy: Literal["Never", "OnFailure", "ExitCode"] = "OnFailure"
    backoff_limit: int = 6
    max_failed_percent: int | None = None
    success_policy: Literal["AllTrainers", "AnyTrainer", "RankZero"] = "AllTrainers"
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    annotations: PaddleAnnotations = PaddleAnnotations()
    trainer: TrainerSpec
    pserver: PserverSpec | None = None
    master: RoleSpec | None = None

    @field_validator("image", "port", "ports_num", "ports_num_for_sparse", mode="after")
    @classmethod
    def _nothing_is_the_default(cls, given: Any, field: ValidationInfo) -> Any:
        return given or cls.model_fields[str(field.field_name)].default


class TrainingJob(Value):
    """A TrainingJob as read from the API; `status` stays raw because it is only compared and patched (D8)."""

    metadata: ObjectMeta
    spec: TrainingJobSpec
    status: Mapping[str, Any] = Field(default_factory=dict)
    raw: Manifest = Field(default_factory=dict, repr=False, exclude=True)
    clamped: tuple[Violation, ...] = Field(default=(), repr=False, exclude=True)
    """One violation per number that exceeded its limit and was clamped to it."""

    @classmethod
    def parse(cls, obj: Manifest) -> "TrainingJob":
        """Read one API object; raises pydantic.ValidationError naming the field."""
        status = obj.get("status")
        read = cls.model_validate({**obj, "status": status if isinstance(status, dict) else {}, "raw": obj})
        spec, clamped = _clamp_spec(read.spec)
        return read.model_copy(update={"spec": spec, "clamped": clamped}) if clamped else read

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.metadata.key

    @property
    def is_elastic(self) -> bool:
        """Whether its number of trainers may vary (TJ §3 row 1)."""
        return self.spec.trainer.min_instance < self.spec.trainer.ceiling

    @property
    def is_fault_tolerant(self) -> bool:
        """`fault_tolerant` as set; when unset, elastic jobs are fault tolerant (TJ §3 row 2)."""
        return self.is_elastic if self.spec.fault_tolerant is None else self.spec.fault_tolerant

    @property
    def has_master(self) -> bool:
        """Whether a master is configured or implied by `fault_tolerant: true` (TJ §3 row 3)."""
        return self.spec.master is not None or self.spec.fault_tolerant is True

    @property
    def passes(self) -> int:
        """Number of passes over the data; `spec.passes`, the only one upstream reads, comes first (TJ §3 row 20)."""
        return self.spec.passes or self.spec.trainer.passes or 1

    @property
    def deadline_s(self) -> int | None:
        """Seconds after which the job fails: `activeDeadlineSeconds`, else upstream's `annotations.walltime`."""
        ours = self.spec.active_deadline_seconds
        return ours if ours is not None else self.spec.annotations.walltime or None

    @property
    def pending_timeout_s(self) -> int:
        """`pendingTimeoutSeconds` clamped to its maximum, which objects stored under an older CRD may exceed."""
        return min(self.spec.pending_timeout_seconds, LONGEST_PENDING_S)

    def role(self, role: str) -> RoleSpec | None:
        """The spec of a role; None if the spec does not contain it (no such role, or a master only implied)."""
        return {MASTER: self.spec.master, PSERVER: self.spec.pserver, TRAINER: self.spec.trainer}[role]

    @property
    def record(self) -> SharingRecord | None:
        """The sharing record, if it has this job's uid."""
        found = parse_record(self.metadata.annotations.get(SHARING_ANNOTATION))
        return found if found is not None and found.uid == self.metadata.uid else None

    def desired_replicas(self) -> int:
        """The desired size: as ordered, clamped to its bounds; the minimum if nothing was ordered."""
        return self.spec.trainer.clamp(self.ordered_replicas())

    def ordered_replicas(self) -> int:
        """The ordered number of trainers, not clamped to minimum and maximum.

        A number in the spec that is larger than that of the sharing record is a request until the sharing pass grants it:
        pods without capacity would take what was freed for jobs below their minimum (FD:TJ3-2). A smaller one is an order.
        Without `replicas` in the spec the last assigned size counts, from the sharing record or else from the status:
        applying the manifest again (`kubectl replace`, GitOps) must not scale down a running job.
        """
        written, record = self.spec.trainer.replicas, self.record
        if record is not None and record.is_admitted and (written is None or self.spec.scaling.enabled):
            return record.replicas if written is None else min(written, record.replicas)
        if written is not None:
            return written
        trainers = self.status.get(TRAINER)
        last = trainers.get("desired") if isinstance(trainers, Mapping) else None
        return last if isinstance(last, int) and last > 0 else self.spec.trainer.min_instance


_INSTANCES: Final = {"min_instance": ("min-instance", MAX_INSTANCES), "max_instance": ("max-instance", MAX_INSTANCES)}
_TRAINERS: Final = {**_INSTANCES, "replicas": ("replicas", MAX_INSTANCES)}
_PORTS: Final = {
    "ports_num": ("ports_num", MAX_PORTS),
    "ports_num_for_sparse": ("ports_num_for_sparse", MAX_PORTS),
}


def _clamp_spec(spec: TrainingJobSpec) -> tuple[TrainingJobSpec, tuple[Violation, ...]]:
    """The spec with its numbers clamped, and one violation per clamped number (api/limits.py)."""
    trainer, in_trainer = clamp_numbers(spec.trainer, _TRAINERS, "spec.trainer")
    pserver, in_pserver = (
        (None, ()) if spec.pserver is None else clamp_numbers(spec.pserver, _INSTANCES, "spec.pserver")
    )
    spec, in_spec = clamp_numbers(spec, _PORTS, "spec")
    parts = {"trainer": trainer, "pserver": pserver} if in_trainer or in_pserver else {}
    return spec.model_copy(update=parts) if parts else spec, (*in_spec, *in_trainer, *in_pserver)
