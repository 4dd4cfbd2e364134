"""What did the user write in a TrainingJob?

Takes the custom resource as JSON, gives a frozen model of the parts we read, in every spelling that real YAML uses
(TJ §2.1, §3 row 20); volumes, mounts, probes and templates stay opaque (D13). Defaults are upstream's. Counts are as
written: validation judges them. A value of the wrong type raises pydantic's ValidationError, whose location is the
field's path. Read by trainingjob/ and sharing/.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AliasChoices, Field, PlainValidator, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from raytide.api.faults import Violation
from raytide.api.limits import MOST_INSTANCES, MOST_PORTS, MOST_SIZES, limited
from raytide.api.meta import Key, Manifest
from raytide.api.sharing import parse_record
from raytide.api.training_names import MASTER, PSERVER, SHARING_ANNOTATION, TRAINER
from raytide.api.value import ObjectMeta, Value

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
"""A quantity as written; what the text means is validation's question. One complaint, where a union makes three."""
Command: TypeAlias = Annotated[tuple[str, ...] | str, PlainValidator(_command)]


class Resources(Value):
    """`resources` as written: quantities are text or numbers."""

    requests: Mapping[str, Amount] = Field(default_factory=dict)
    limits: Mapping[str, Amount] = Field(default_factory=dict)


class RoleSpec(Value):
    """What master, pserver and trainer share."""

    entrypoint: str = ""
    """A shell line; pservers without one run the trainers', a master without one runs what its image runs."""
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
    """A PodTemplateSpec, merged over what is built: containers by name, the rest as template_merge.py says."""


class InstancesSpec(RoleSpec):
    """A role whose number has bounds."""

    min_instance: int = Field(default=0, validation_alias=_spelled("min-instance", "minInstance"))
    max_instance: int | None = Field(default=None, validation_alias=_spelled("max-instance", "maxInstance"))
    """None: as many as the minimum."""

    @property
    def ceiling(self) -> int:
        """The most there may be."""
        return self.min_instance if self.max_instance is None else self.max_instance


class TrainerSpec(InstancesSpec):
    """`trainer`."""

    workspace: str = ""
    passes: int | None = None
    replicas: int | None = None
    """The current wanted size, written by the sharing pass or through `scale`; unclamped."""


class PserverScaling(Value):
    """`pserver.scaling`: whether parameter servers come and go with trainers (TJ §3 row 4)."""

    mode: Literal["Fixed", "Ratio"] = "Fixed"
    trainers_per_pserver: int = 1


class PserverSpec(InstancesSpec):
    """`pserver`; a bare `scaling: Ratio` is the mode."""

    scaling: PserverScaling = PserverScaling()

    @field_validator("scaling", mode="before")
    @classmethod
    def _bare_mode(cls, given: Any) -> Any:
        return {"mode": given} if isinstance(given, str) else given

    @property
    def is_by_ratio(self) -> bool:
        """Whether their number follows that of the trainers."""
        return self.scaling.mode == "Ratio"

    @property
    def trainers_per_pserver(self) -> int:
        """How many trainers share one."""
        return self.scaling.trainers_per_pserver

    def count_for(self, trainers: int) -> int:
        """How many parameter servers go with so many trainers."""
        if not self.is_by_ratio:
            return self.min_instance
        return min(self.ceiling, max(self.min_instance, -(-trainers // max(1, self.trainers_per_pserver))))


class ScalingSpec(Value):
    """`scaling`: how the job takes part in sharing (TJ §8). Times are in seconds."""

    enabled: bool = True
    step: int = 1
    allowed_sizes: tuple[int, ...] = Field(default=(), max_length=MOST_SIZES)
    grow_cooldown_seconds: int = 30
    shrink_cooldown_seconds: int = 10
    min_runtime_seconds: int = 0
    rebalance: bool = True
    yield_to_pods: bool = False
    """Whether it gives to pods of others with a higher priority (TJ §3 row 6c)."""
    accounting: Literal["Limits", "Requests"] = "Limits"


class PaddleAnnotations(Value):
    """`annotations` of `spec`, as Paddle's last operator had them; the others are named as unsupported."""

    walltime: int = 0
    """Seconds from the start after which the job has failed; 0: no end."""


class TrainingJobSpec(Value):
    """`spec`. A zero or an empty text where there is a default means the default, as upstream writes it."""

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
    """After so long a job whose minimum does not start gives its room back; see `pending_timeout_s`."""
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
    cuts: tuple[Violation, ...] = Field(default=(), repr=False, exclude=True)
    """Numbers that were above their limit, and count as the limit."""

    @classmethod
    def parse(cls, obj: Manifest) -> "TrainingJob":
        """Read one API object; raises pydantic.ValidationError naming the field."""
        status = obj.get("status")
        read = cls.model_validate({**obj, "status": status if isinstance(status, dict) else {}, "raw": obj})
        spec, cuts = _limited(read.spec)
        return read.model_copy(update={"spec": spec, "cuts": cuts}) if cuts else read

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.metadata.key

    @property
    def is_elastic(self) -> bool:
        """Whether its number of trainers is open (TJ §3 row 1)."""
        return self.spec.trainer.min_instance < self.spec.trainer.ceiling

    @property
    def is_fault_tolerant(self) -> bool:
        """As told; where nothing is said, whatever is elastic has to be (TJ §3 row 2)."""
        return self.is_elastic if self.spec.fault_tolerant is None else self.spec.fault_tolerant

    @property
    def has_master(self) -> bool:
        """Configured, or asked for by `fault_tolerant: true` (TJ §3 row 3)."""
        return self.spec.master is not None or self.spec.fault_tolerant is True

    @property
    def passes(self) -> int:
        """How often the data is gone through; upstream listens to `spec.passes` only, so that wins (TJ §3 row 20)."""
        return self.spec.passes or self.spec.trainer.passes or 1

    @property
    def deadline_s(self) -> int | None:
        """After so many seconds the job has failed; upstream's `annotations.walltime` where nothing else is said."""
        ours = self.spec.active_deadline_seconds
        return ours if ours is not None else self.spec.annotations.walltime or None

    @property
    def pending_timeout_s(self) -> int:
        """The same within its bounds: objects from before the CRD had a maximum may say more."""
        return min(self.spec.pending_timeout_seconds, LONGEST_PENDING_S)

    def role(self, role: str) -> RoleSpec | None:
        """What the spec says about a role; None where the job has none of it, or nothing is said (a bare master)."""
        return {MASTER: self.spec.master, PSERVER: self.spec.pserver, TRAINER: self.spec.trainer}[role]

    def trainers_wanted(self) -> int:
        """The size it has to have now: as ordered, within its bounds; its minimum where nothing was ordered."""
        trainer = self.spec.trainer
        return min(trainer.ceiling, max(trainer.min_instance, self.size_ordered()))

    def size_ordered(self) -> int:
        """The size as ordered, perhaps out of its bounds.

        A spec without it orders nothing: whoever replaces a job by a manifest (`kubectl replace`, GitOps) must not shrink
        what runs. What was ordered last counts then, by the record, or by the status where the record went too.
        """
        if self.spec.trainer.replicas is not None:
            return self.spec.trainer.replicas
        record = parse_record(self.metadata.annotations.get(SHARING_ANNOTATION))
        if record is not None and record.uid == self.metadata.uid and record.is_admitted:
            return record.replicas
        trainers = self.status.get(TRAINER)
        last = trainers.get("desired") if isinstance(trainers, Mapping) else None
        return last if isinstance(last, int) and last > 0 else self.spec.trainer.min_instance


_INSTANCES: Final = {"min_instance": ("min-instance", MOST_INSTANCES), "max_instance": ("max-instance", MOST_INSTANCES)}
_TRAINERS: Final = {**_INSTANCES, "replicas": ("replicas", MOST_INSTANCES)}
_PORTS: Final = {
    "ports_num": ("ports_num", MOST_PORTS),
    "ports_num_for_sparse": ("ports_num_for_sparse", MOST_PORTS),
}


def _limited(spec: TrainingJobSpec) -> tuple[TrainingJobSpec, tuple[Violation, ...]]:
    """The spec as far as it counts, and what does not (api/limits.py)."""
    trainer, trainer_cuts = limited(spec.trainer, _TRAINERS, "spec.trainer")
    pserver, pserver_cuts = (None, ()) if spec.pserver is None else limited(spec.pserver, _INSTANCES, "spec.pserver")
    spec, cuts = limited(spec, _PORTS, "spec")
    parts = {"trainer": trainer, "pserver": pserver} if trainer_cuts or pserver_cuts else {}
    return spec.model_copy(update=parts) if parts else spec, (*cuts, *trainer_cuts, *pserver_cuts)
