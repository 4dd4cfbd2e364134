"""How was the sidecar told to run?

Takes the environment of the container, spelled as Ray's own autoscaler reads it (AS §1.3), and gives frozen values. It
reads the environment once, at the start of the process; a value that cannot be meant is one `BadSetting` that names the
variable and what to write instead, and a variable that changes nothing here is named with its reason, never ignored in
silence (docs/compatibility.md). Read by main.py; the parts get the values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raytide.autoscaler.inputs.lifecycle import TimeLimits
from raytide.autoscaler.inputs.node_autoscaler import Presence

HUGE: Final = 2**31 - 1
"""What Ray makes of the word `inf`."""
RAY_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
OFF: Final = ("", "0", "false", "no", "off")

NO_EFFECT: Final[Mapping[str, str]] = {
    "AUTOSCALER_MAX_CONCURRENT_LAUNCHES": "the whole target of a group is asked for in one patch",
    "AUTOSCALER_MAX_NUM_FAILURES": "a failed update never ends the sidecar",
    "AUTOSCALER_MAX_LAUNCH_BATCH": "it belongs to Ray's autoscaler V1",
    "AUTOSCALER_MAX_RESOURCE_DEMAND_VECTOR_SIZE": "it belongs to Ray's autoscaler V1",
    "RAY_AUTOSCALER_UTILIZATION_SCORER": "it belongs to Ray's autoscaler V1",
    "RAY_AUTOSCALER_RECONCILE_RAY_INSTALL_STATUS_TIMEOUT_S": "nothing is installed on Kubernetes, as with Ray's own",
    "RAY_AUTOSCALER_RECONCILE_TERMINATING_STATUS_TIMEOUT_S": "the operator deletes named pods until they are gone",
}
"""Variables of Ray's autoscaler that change nothing here, and why; also in docs/compatibility.md."""


class BadSetting(Exception):  # noqa: N818 - a sentence for the user
    """A variable says what cannot be meant; the message is one line that says what to write."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The way to the API server."""

    host: str
    port: str
    version: str
    """Of RayClusters, in their path."""
    timeout_s: float
    service_account: Path | None
    """None: where a kubelet mounts it."""
    authority: Path | None
    certificate: Path | None
    private_key: Path | None


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Who is told what, and how long it is kept."""

    level: int
    rotation_bytes: int
    """Zero: never."""
    rotated_files: int
    has_events: bool
    """RAY_SCHEDULER_EVENTS: whether drivers are told."""


@dataclass(frozen=True, slots=True)
class SidecarSettings:
    """Everything that can be set from outside, except whose sidecar it is."""

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
    """Whether the operator is ours: then decisions are recorded (sidecar-contract)."""
    api: ApiSettings
    logs: LogSettings


def read_settings(environ: Mapping[str, str]) -> SidecarSettings:
    """All of them; raises `BadSetting` for the first that cannot be meant."""
    read = _Reader(environ)
    pending_idle_s = read.whole("RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S", -1, at_least=None)
    return SidecarSettings(
        interval_s=float(read.whole("AUTOSCALER_UPDATE_INTERVAL_S", 5, at_least=1)),
        has_gpu_conservation=read.whole("AUTOSCALER_CONSERVE_GPU_NODES", 1, at_least=None) == 1,
        pending_idle_timeout_s=None if pending_idle_s < 0 else float(pending_idle_s),
        recovery_s=float(read.whole("RAY_AUTOSCALER_AVAILABILITY_RECOVERY_S", 600, at_least=1)),
        time_limits=TimeLimits.from_environment(environ),
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


def without_effect(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """(variable, reason) of each that is set and changes nothing here."""
    return tuple((name, why) for name, why in NO_EFFECT.items() if environ.get(name))


def _api(read: "_Reader") -> ApiSettings:
    certificate, private_key = read.path("RAY_KUBERAY_CLIENT_CERT_PATH"), read.path("RAY_KUBERAY_CLIENT_KEY_PATH")
    if bool(certificate) != bool(private_key):
        present = "RAY_KUBERAY_CLIENT_CERT_PATH" if certificate else "RAY_KUBERAY_CLIENT_KEY_PATH"
        raise BadSetting(
            f"{present} is set alone: set RAY_KUBERAY_CLIENT_CERT_PATH and RAY_KUBERAY_CLIENT_KEY_PATH, or neither"
        )
    return ApiSettings(
        host=read.text("KUBERNETES_SERVICE_HOST", "kubernetes.default"),
        port=read.text("KUBERNETES_SERVICE_PORT_HTTPS") or read.text("KUBERNETES_SERVICE_PORT", "443"),
        version=read.text("KUBERAY_CRD_VER", "v1"),
        timeout_s=float(read.whole("KUBERAY_REQUEST_TIMEOUT_S", 10, at_least=1)),
        service_account=read.path("RAYTIDE_SERVICE_ACCOUNT_DIR"),
        authority=read.path("RAY_KUBERAY_CA_CERT_PATH"),
        certificate=certificate,
        private_key=private_key,
    )


def _logs(read: "_Reader") -> LogSettings:
    return LogSettings(
        level=read.level("RAY_AUTOSCALER_LOG_LEVEL", "RAY_LOGGER_LEVEL"),
        rotation_bytes=read.whole("RAY_ROTATION_MAX_BYTES", 512 * 1024 * 1024, at_least=0),
        rotated_files=read.whole("RAY_ROTATION_BACKUP_COUNT", 5, at_least=0),
        has_events=read.text("RAY_SCHEDULER_EVENTS", "1").lower() not in OFF,
    )


class _Reader:
    """One environment, word by word."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, name: str, default: str = "") -> str:
        return self._environ.get(name, "").strip() or default

    def path(self, name: str) -> Path | None:
        words = self.text(name)
        return Path(words) if words else None

    def whole(self, name: str, default: int, *, at_least: int | None) -> int:
        """A whole number or `inf`, as Ray's `env_integer` reads it; anything else fails the start."""
        words = self.text(name, str(default))
        if words == "inf":
            return HUGE
        try:
            number = int(words)
        except ValueError:
            raise BadSetting(f"{name}={words!r} is no whole number: write digits or `inf`, or unset it") from None
        if at_least is not None and number < at_least:
            raise BadSetting(f"{name}={words} is too small: write at least {at_least}, or unset it")
        return number

    def port(self, name: str, default: int) -> int:
        number = self.whole(name, default, at_least=0)
        if number > 65535:
            raise BadSetting(f"{name}={number} is no port: write 1 to 65535, or 0 for off")
        return number

    def presence(self, name: str) -> Presence:
        words = self.text(name, Presence.AUTO).lower()
        if words not in [*Presence]:
            raise BadSetting(f"{name}={words!r} is unknown: write one of {', '.join(Presence)}, or unset it")
        return Presence(words)

    def level(self, *names: str) -> int:
        """The first of them that is set; what is no level fails the start."""
        for name in names:
            words = self.text(name).lower()
            if words and words not in RAY_LEVELS:
                raise BadSetting(f"{name}={words!r} is no level: write one of {', '.join(RAY_LEVELS)}")
            if words:
                return RAY_LEVELS[words]
        return RAY_LEVELS["info"]
