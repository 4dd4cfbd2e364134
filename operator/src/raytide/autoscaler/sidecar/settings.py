"""Settings of the sidecar from environment variables.

Takes the container's environment, with the variable names of Ray's own autoscaler (AS §1.3), and returns frozen values.
The environment is read once, at process start. An invalid value raises `SettingError`, which names the variable and what
to write instead; a variable without effect here is listed with its reason, never silently ignored
(docs/compatibility.md). Read by main.py, which passes the values on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raytide.api.node_autoscaler import Presence
from raytide.autoscaler.reporting.log_settings import LogSettings
from raytide.autoscaler.state.instance_lifecycle import TimeLimits

UNLIMITED: Final = 2**31 - 1
"""Ray's meaning of the value `inf`."""
RAY_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
OFF: Final = ("", "0", "false", "no", "off")

NO_EFFECT: Final[Mapping[str, str]] = {
    "AUTOSCALER_MAX_CONCURRENT_LAUNCHES": "all replicas of a group are requested in one patch",
    "AUTOSCALER_MAX_NUM_FAILURES": "the sidecar does not exit after failed updates",
    "AUTOSCALER_MAX_LAUNCH_BATCH": "it is a setting of Ray's autoscaler V1",
    "AUTOSCALER_MAX_RESOURCE_DEMAND_VECTOR_SIZE": "it is a setting of Ray's autoscaler V1",
    "RAY_AUTOSCALER_UTILIZATION_SCORER": "it is a setting of Ray's autoscaler V1",
    "RAY_AUTOSCALER_RECONCILE_RAY_INSTALL_STATUS_TIMEOUT_S": "nothing is installed on Kubernetes; Ray's autoscaler does not use it there either",
    "RAY_AUTOSCALER_RECONCILE_TERMINATING_STATUS_TIMEOUT_S": "the operator retries deletions of pods until they are gone",
}
"""Variables of Ray's autoscaler without effect here, and why; also in docs/compatibility.md."""


TIME_LIMITS: Final[Mapping[str, str]] = {
    "request_s": "RAY_AUTOSCALER_RECONCILE_REQUEST_STATUS_TIMEOUT_S",
    "request_retries": "RAY_AUTOSCALER_RECONCILE_MAX_NUM_RETRY_REQUEST_TO_ALLOCATE",
    "allocate_s": "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S",
    "stop_request_s": "RAY_AUTOSCALER_RECONCILE_RAY_STOP_REQUESTED_STATUS_TIMEOUT_S",
    "warn_s": "RAY_AUTOSCALER_RECONCILE_TRANSIENT_STATUS_WARN_INTERVAL_S",
    "capacity_s": "RAYTIDE_AUTOSCALER_UNSCHEDULABLE_TIMEOUT_S",
    "first_event_s": "RAYTIDE_AUTOSCALER_NODE_ANSWER_TIMEOUT_S",
    "node_s": "RAYTIDE_AUTOSCALER_NODE_TIMEOUT_S",
    "schedule_s": "RAYTIDE_AUTOSCALER_SCHEDULE_TIMEOUT_S",
    "pull_s": "RAYTIDE_AUTOSCALER_PULL_TIMEOUT_S",
    "initialize_s": "RAYTIDE_AUTOSCALER_INIT_TIMEOUT_S",
    "broken_s": "RAYTIDE_AUTOSCALER_BROKEN_TIMEOUT_S",
    "register_s": "RAYTIDE_AUTOSCALER_REGISTER_TIMEOUT_S",
}
"""Variable of each field of `TimeLimits` that can be set."""


class SettingError(Exception):
    """An invalid value; the message is one line that includes the fix."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Connection to the API server."""

    host: str
    port: str
    version: str
    """API version of RayClusters."""
    timeout_s: float
    service_account_dir: Path | None
    """None: the kubelet's mount path."""
    ca_file: Path | None
    certificate: Path | None
    private_key: Path | None


@dataclass(frozen=True, slots=True)
class SidecarSettings:
    """All settings, except for the RayCluster the sidecar belongs to."""

    interval_s: float
    has_gpu_conservation: bool
    pending_idle_timeout_s: float | None
    recovery_s: float
    time_limits: TimeLimits
    node_autoscaler: Presence
    metrics_port: int
    health_port: int
    head_pod: str
    pod_ip: str
    gcs_address: str
    is_under_raytide: bool
    """Whether the operator is Raytide's: then decisions are recorded (sidecar-contract)."""
    api: ApiSettings
    logs: LogSettings


def read_settings(environ: Mapping[str, str]) -> SidecarSettings:
    """Read all settings; raises `SettingError` for the first invalid value."""
    read = _Reader(environ)
    pending_idle_s = read.integer("RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S", -1, minimum=None)
    return SidecarSettings(
        interval_s=float(read.integer("AUTOSCALER_UPDATE_INTERVAL_S", 5, minimum=1)),
        has_gpu_conservation=read.integer("AUTOSCALER_CONSERVE_GPU_NODES", 1, minimum=None) == 1,
        pending_idle_timeout_s=None if pending_idle_s < 0 else float(pending_idle_s),
        recovery_s=float(read.integer("RAY_AUTOSCALER_AVAILABILITY_RECOVERY_S", 600, minimum=1)),
        time_limits=_time_limits(read),
        node_autoscaler=read.presence("RAYTIDE_AUTOSCALER_NODE_AUTOSCALER"),
        metrics_port=read.port("AUTOSCALER_METRIC_PORT", 44217),
        health_port=read.port("RAYTIDE_AUTOSCALER_HEALTH_PORT", 44218),
        head_pod=read.text("RAY_HEAD_POD_NAME"),
        pod_ip=read.text("POD_IP") or read.text("RAY_POD_IP"),
        gcs_address=read.text("RAYTIDE_GCS_ADDRESS"),
        is_under_raytide=bool(read.text("RAYTIDE_OPERATOR_VERSION")),
        api=_api(read),
        logs=_logs(read),
    )


def settings_without_effect(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """(variable, reason) of each variable that is set and has no effect."""
    return tuple((name, why) for name, why in NO_EFFECT.items() if environ.get(name))


def _time_limits(read: "_Reader") -> TimeLimits:
    """The limits that are set; unlike Ray, which uses the default of a RECONCILE variable that is no number (AS §1.3)."""
    given = {name: variable for name, variable in TIME_LIMITS.items() if read.text(variable)}
    return TimeLimits.with_settings({name: read.integer(variable, 0, minimum=0) for name, variable in given.items()})


def _api(read: "_Reader") -> ApiSettings:
    certificate, private_key = read.path("RAY_KUBERAY_CLIENT_CERT_PATH"), read.path("RAY_KUBERAY_CLIENT_KEY_PATH")
    if bool(certificate) != bool(private_key):
        present = "RAY_KUBERAY_CLIENT_CERT_PATH" if certificate else "RAY_KUBERAY_CLIENT_KEY_PATH"
        raise SettingError(
            f"only {present} is set: set RAY_KUBERAY_CLIENT_CERT_PATH and RAY_KUBERAY_CLIENT_KEY_PATH, or neither"
        )
    return ApiSettings(
        host=read.text("KUBERNETES_SERVICE_HOST", "kubernetes.default"),
        port=read.text("KUBERNETES_SERVICE_PORT_HTTPS") or read.text("KUBERNETES_SERVICE_PORT", "443"),
        version=read.text("KUBERAY_CRD_VER", "v1"),
        timeout_s=float(read.integer("KUBERAY_REQUEST_TIMEOUT_S", 10, minimum=1)),
        service_account_dir=read.path("RAYTIDE_SERVICE_ACCOUNT_DIR"),
        ca_file=read.path("RAY_KUBERAY_CA_CERT_PATH"),
        certificate=certificate,
        private_key=private_key,
    )


def _logs(read: "_Reader") -> LogSettings:
    return LogSettings(
        level=read.level("RAY_AUTOSCALER_LOG_LEVEL", "RAY_LOGGER_LEVEL"),
        rotation_bytes=read.integer("RAY_ROTATION_MAX_BYTES", 512 * 1024 * 1024, minimum=0),
        rotated_files=read.integer("RAY_ROTATION_BACKUP_COUNT", 5, minimum=0),
        has_events=read.text("RAY_SCHEDULER_EVENTS", "1").lower() not in OFF,
    )


class _Reader:
    """Typed access to the environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, name: str, default: str = "") -> str:
        return self._environ.get(name, "").strip() or default

    def path(self, name: str) -> Path | None:
        value = self.text(name)
        return Path(value) if value else None

    def integer(self, name: str, default: int, *, minimum: int | None) -> int:
        """An integer or `inf`, as Ray's `env_integer` reads it; raises `SettingError` for anything else."""
        value = self.text(name, str(default))
        if value == "inf":
            return UNLIMITED
        try:
            number = int(value)
        except ValueError:
            raise SettingError(f"{name}={value!r} is not an integer: set an integer or `inf`, or unset it") from None
        if minimum is not None and number < minimum:
            raise SettingError(f"{name}={value} is too small: set at least {minimum}, or unset it")
        return number

    def port(self, name: str, default: int) -> int:
        number = self.integer(name, default, minimum=0)
        if number > 65535:
            raise SettingError(f"{name}={number} is not a port: set 1 to 65535, or 0 to disable it")
        return number

    def presence(self, name: str) -> Presence:
        value = self.text(name, Presence.AUTO).lower()
        if value not in [*Presence]:
            raise SettingError(f"{name}={value!r} is not supported: set one of {', '.join(Presence)}, or unset it")
        return Presence(value)

    def level(self, *names: str) -> int:
        """The first variable that is set; raises `SettingError` for an unknown level."""
        for name in names:
            value = self.text(name).lower()
            if value and value not in RAY_LEVELS:
                raise SettingError(f"{name}={value!r} is not a log level: set one of {', '.join(RAY_LEVELS)}")
            if value:
                return RAY_LEVELS[value]
        return RAY_LEVELS["info"]
