"""The `ray start` command of a Ray pod.

Completes the user's `rayStartParams` (RC:RSP-1 to RC:RSP-15) and builds the `ray start` line and the container's
command from them (RC:CMD-1 to RC:CMD-5). The user's parameters are kept, except `block` and those that the group's
`resources` and `labels` set. Unreadable values are passed on or left out without an error: rejecting them is up to
validation and the API server. Steps of pods.py.
"""

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from raytide.api import constants
from raytide.api.gpu_resource import is_gpu
from raytide.api.meta import Manifest
from raytide.api.quantity import Quantity, QuantityError
from raytide.raycluster.manifests.pod_builder import PodBuilder, PodContext, has_named, listed

BLOCK: Final = "block"
DASHBOARD_PORT_PARAM: Final = "dashboard-port"
METRICS_PORT_PARAM: Final = "metrics-export-port"
AGENT_PORT_PARAM: Final = "dashboard-agent-listen-port"
RESOURCES_PARAM: Final = "resources"

_FLAGS_WITH_VALUE: Final = frozenset({"log-color", "include-dashboard", "include-log-monitor"})
_RAY_NAME_OF_ACCELERATOR: Final = {"aws.amazon.com/neuroncore": "neuron_cores", "google.com/tpu": "TPU"}
_MAX_EXPONENT: Final = 308
_ULIMIT: Final = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}"


# --- parameters ----------------------------------------------------------------------------------------------------
def add_group_params(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Add the parameters from the group's `resources` and `labels` (RC:RSP-1, RC:RSP-2)."""
    params = {**builder.ray_start_params, **_params_of_resources(context.group.resources)}
    if context.group.labels:
        params["labels"] = ",".join(f"{key}={value}" for key, value in sorted(context.group.labels.items()))
    return replace(builder, ray_start_params=params)


def add_missing_params(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Add default parameters and those from the Ray container's resources (RC:RSP-3 to RC:RSP-14)."""
    all_addresses = "::" if context.config.is_ipv6 else "0.0.0.0"  # noqa: S104 - RC:RSP-4; Ray listens on one family
    role = {"dashboard-host": all_addresses} if context.is_head else {"address": context.gcs_address}
    ours = {
        **role,
        METRICS_PORT_PARAM: str(constants.METRICS_PORT),
        AGENT_PORT_PARAM: str(constants.DASHBOARD_AGENT_PORT),
    }
    params = {**ours, **builder.ray_start_params, BLOCK: "true"}
    resources = builder.ray.get("resources") or {}
    limits, requests = _without_zeros(resources.get("limits")), _without_zeros(resources.get("requests"))
    params = {**_cpus_and_memory(limits, requests), **params}
    return replace(builder, ray_start_params={**params, **_accelerators(params, limits)})


def _params_of_resources(resources: Mapping[str, str]) -> dict[str, str]:
    params: dict[str, str] = {}
    custom: dict[str, Decimal] = {}
    for name, amount in _amounts(resources).items():
        if name.lower() == "cpu":
            params["num-cpus"] = str(amount.ceil_to_int())
        elif name.lower() == "memory":
            params["memory"] = str(amount.ceil_to_int())
        elif is_gpu(name.lower()):
            params["num-gpus"] = str(amount.ceil_to_int())
        else:
            custom[name] = _as_decimal(amount)
    if custom:
        params[RESOURCES_PARAM] = f"'{_write_resources(custom)}'"
    return params


def _cpus_and_memory(limits: Mapping[str, Quantity], requests: Mapping[str, Quantity]) -> dict[str, str]:
    cpus = limits.get("cpu") or requests.get("cpu")
    found = {"num-cpus": cpus, "memory": limits.get("memory")}
    return {param: str(amount.ceil_to_int()) for param, amount in found.items() if amount}


def _accelerators(params: Mapping[str, str], limits: Mapping[str, Quantity]) -> dict[str, str]:
    """Parameters for GPUs and one kind of TPU or Neuron core; none when `resources` is unreadable (RC:RSP-14)."""
    custom = _read_resources(params.get(RESOURCES_PARAM))
    if custom is None:
        return {}
    found: dict[str, str] = {}
    gpus = [name for name in sorted(limits) if is_gpu(name)]
    if gpus and "num-gpus" not in params:
        found["num-gpus"] = str(limits[gpus[0]].ceil_to_int())
    chips = [name for name in sorted(limits) if name in _RAY_NAME_OF_ACCELERATOR]
    if chips and custom.keys().isdisjoint(_RAY_NAME_OF_ACCELERATOR.values()):
        ray_name = _RAY_NAME_OF_ACCELERATOR[chips[0]]
        found[RESOURCES_PARAM] = f"'{_write_resources({**custom, ray_name: _as_decimal(limits[chips[0]])})}'"
    return found


def _amounts(resources: Mapping[str, Any] | None) -> dict[str, Quantity]:
    """The parsed amounts; unreadable ones are left out."""
    amounts: dict[str, Quantity] = {}
    for name, text in (resources or {}).items():
        with suppress(QuantityError):
            amounts[name] = Quantity.parse(text)
    return amounts


def _without_zeros(resources: Mapping[str, Any] | None) -> dict[str, Quantity]:
    """A container's non-zero amounts; a zero is ignored, unlike a group's `CPU: 0`, which keeps tasks off the node."""
    return {name: amount for name, amount in _amounts(resources).items() if not amount.is_zero}


def _read_resources(param: str | None) -> dict[str, Decimal] | None:
    """The `resources` parameter of `ray start` as numbers by name; None when it is not a JSON object of numbers (RC:RSP-14)."""
    if param is None:
        return {}
    try:
        resources = json.loads(
            param.strip("'\"` "), parse_int=Decimal, parse_float=Decimal, parse_constant=lambda _: None
        )
    except (ValueError, RecursionError):
        return None
    if not isinstance(resources, dict) or not all(_is_sensible(number) for number in resources.values()):
        return None
    return resources


def _is_sensible(number: Any) -> bool:
    """Whether it fits a double, as KubeRay reads it; writing out `1e999999999` would exhaust the operator's memory."""
    return isinstance(number, Decimal) and abs(number.adjusted()) <= _MAX_EXPONENT


def _write_resources(resources: Mapping[str, Decimal]) -> str:
    pairs = (f"{json.dumps(name)}:{_number(number)}" for name, number in sorted(resources.items()))
    return f"{{{','.join(pairs)}}}"


def _number(number: Decimal) -> str:
    """A JSON number without exponent and trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _as_decimal(amount: Quantity) -> Decimal:
    return Decimal(amount.nanos).scaleb(-9)


# --- command -------------------------------------------------------------------------------------------------------
def start_command(params: Mapping[str, str], *, is_head: bool) -> str:
    """The `ray start` line with all flags, sorted, each with a space on both sides (RC:CMD-2)."""
    flags = (_flag(name, value) for name, value in sorted(params.items()))
    return f"ray start {'--head ' if is_head else ''}{''.join(flags)}"


def start_variables(builder: PodBuilder, *, is_head: bool) -> dict[str, str]:
    """The variable with the `ray start` line (RC:CMD-5), and that with the custom resources where the user's command runs the line.

    No JSON survives both `eval "$VAR"`, which removes its quotes, and `$VAR`, which keeps those around it. Ray also reads
    the resources from a variable, which no shell parses (FD:RC3-6).
    """
    params = dict(builder.ray_start_params)
    words = [word for key in ("command", "args") for word in listed(builder.ray, key)]
    is_run_by_user = any(constants.RAY_START_VARIABLE in word for word in words)
    is_free = not has_named(listed(builder.ray, "env"), constants.RAY_RESOURCES_VARIABLE)
    resources = _read_quoted_resources(params.get(RESOURCES_PARAM)) if is_run_by_user and is_free else None
    variables = {}
    if resources is not None:
        del params[RESOURCES_PARAM]
        variables[constants.RAY_RESOURCES_VARIABLE] = _write_resources(resources)
    return {constants.RAY_START_VARIABLE: start_command(params, is_head=is_head), **variables}


def _read_quoted_resources(param: str | None) -> dict[str, Decimal] | None:
    """The resources as a shell would read the word, else as they are; None where the shell would expand something."""
    if param is None or "$" in param or "`" in param:
        return None
    try:
        unquoted = shlex.split(param)
    except ValueError:
        unquoted = []
    found = _read_resources(unquoted[0]) if len(unquoted) == 1 else None
    return _read_resources(param) if found is None else found


def set_start_command(builder: PodBuilder, context: PodContext) -> PodBuilder:
    """Make the Ray container start Ray, unless its command does so or the user disabled it (RC:CMD-1 to RC:CMD-4)."""
    own_command = "".join(f" {word} " for key in ("command", "args") for word in listed(builder.ray, key))
    if is_true(builder.annotations.get(constants.OVERWRITE_CONTAINER_CMD_ANNOTATION)) or "ray start" in own_command:
        return builder
    command = f"{_ULIMIT}; {start_command(builder.ray_start_params, is_head=context.is_head)}"
    script = f"{own_command} && {command}" if own_command else command
    ray: Manifest = {**builder.ray, "command": context.shell, "args": [script]}
    return replace(builder, ray=ray)


def is_true(text: str | None) -> bool:
    """Whether an annotation is `true`, ignoring case."""
    return text is not None and text.lower() == "true"


def port_param(params: Mapping[str, str], name: str, default: int) -> int:
    """A port given as a parameter; the default when it is absent or not an integer (RC:PRB-4)."""
    try:
        return int(params.get(name, default))
    except ValueError:
        return default


def _flag(name: str, value: str) -> str:
    if value.lower() in {"true", "false"} and name not in _FLAGS_WITH_VALUE:
        return f" --{name} " if is_true(value) else ""
    return f" --{name}={value} "
