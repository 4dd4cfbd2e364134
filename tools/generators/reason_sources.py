"""Reasons of conditions and events in the operator's code, and the docstrings of their constants.

Reads the syntax trees of the operator's modules. `written_reasons` evaluates the reason in each call that builds a condition, an event
or a write, through variables, parameters and functions of the same module. `PASSED_ON` has the calls whose reason comes from
elsewhere, and a further one is an error. So a reason that is added to the code cannot be missing on the pages of reasons.py,
its only caller.
"""

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import raytide
from raytide.api import constants, sharing_record
from raytide.api import trainingjob_constants as training
from raytide.api.autoscaler_decision import LIMIT_REASONS
from raytide.api.pod_failure import Cause
from raytide.fairshare.algorithm import model
from raytide.raycluster.conditions import FAILURE_CLASS
from raytide.trainingjob.events import NOT_CAPACITY

PRODUCT: Final = Path(raytide.__file__).parent
KINDS_OF_PACKAGES: Final = {
    "raycluster": "RayCluster",
    "autoscaler": "RayCluster",
    "trainingjob": "TrainingJob",
    "fairshare": "TrainingJob",
}
"""The packages that write conditions and events, or decide their reasons, and for which kind."""


class UnknownSourceError(Exception):
    """A call whose reason comes from another module, and `PASSED_ON` does not have it."""


# --- where reasons are in calls ----------------------------------------------------------------------------------------------

_FIRST, _SECOND, _THIRD = {"reason": 0}, {"reason": 1}, {"reason": 2}
CONDITIONS: Final[Mapping[str, Mapping[str, int]]] = {
    "ConditionUpdate": _THIRD,
    "RecordProblem": _FIRST,
    "JobResult": _SECOND,
    "_Reason": _FIRST,
    "WaitingNote": _FIRST,
    "Waiting": _SECOND,
    "Why": _FIRST,
    "UnavailableGroup": _FIRST,
    "Startup": _FIRST,
}
"""Classes of conditions and of what they are computed from: the position of each argument that is a reason."""
EVENTS: Final[Mapping[str, Mapping[str, int]]] = {
    "EventSpec": _FIRST,
    "Violation": {"event_reason": 3},
    "Create": {"success_reason": 2, "failure_reason": 3},
    "OwnedObject": {"success_reason": 2, "failure_reason": 3},
    "Delete": {"success_reason": 4, "failure_reason": 5},
    "Patch": {"success_reason": 5, "failure_reason": 6},
}
"""The same for events and writes."""
PASSED_ON: Final[Mapping[str, tuple[str, ...]]] = {
    "raycluster.conditions.invalid": (constants.INVALID_SPEC, constants.INVALID_METADATA, constants.INVALID_STATUS),
    "raycluster.conditions.head_pod_ready": (),  # of the pod or its container, as KubeRay: any text
    "raycluster.conditions.replica_failure": tuple(FAILURE_CLASS.values()),
    "raycluster.conditions.workers_missing": tuple(Cause),
    "raycluster.conditions_scaling.autoscaler_down": (),  # a RecordProblem
    "raycluster.conditions_scaling.replicas_contended": (),  # the condition as it was
    "raycluster.conditions_scaling.scaling_limited": tuple(map(str, LIMIT_REASONS)),
    "raycluster.messages.condition_true": (
        constants.WORKERS_MISSING,
        constants.SCALING_LIMITED,
        constants.REPLICAS_CONTENDED,
    ),
    "raycluster.messages.redis_not_cleaned_up": (
        constants.FORCE_DELETED_STUCK_CLUSTER,
        constants.REDIS_CLEANUP_FAILED,
        constants.REDIS_CLEANUP_SKIPPED,
    ),
    "raycluster.owned_objects.create": (),  # an OwnedObject
    "raycluster.owned_objects._right": (
        constants.CREATED_SERVICE_ACCOUNT,
        constants.FAILED_TO_CREATE_SERVICE_ACCOUNT,
        constants.CREATED_ROLE,
        constants.FAILED_TO_CREATE_ROLE,
        constants.CREATED_ROLE_BINDING,
        constants.FAILED_TO_CREATE_ROLE_BINDING,
    ),
    # Violations:
    "raycluster.plan.hold_unprotected": (),
    "raycluster.plan._violations_plan": (),
    "raycluster.reconciler._hold_unreadable": (),
    "raycluster.spec_warnings.warning_events": (),
    "autoscaler.scaling.group_decisions._reasons": (),  # an UnavailableGroup
    "autoscaler.state.group_availability._blocked": tuple(map(str, LIMIT_REASONS)),
    "autoscaler.state.pod_startup.startup_of": tuple(Cause),
    "fairshare.algorithm.pending_reasons.waiting": (
        model.INSUFFICIENT,
        model.INSUFFICIENT_GPU,
        model.FRAGMENTED,
        model.QUOTA_EXCEEDED,
        model.UNSATISFIABLE,
        model.HIGHER_PRIORITY,
        model.CAPACITY_RESERVED,
        model.COOLING_DOWN,
        sharing_record.CREATION_FORBIDDEN,
        sharing_record.UNSCHEDULABLE,
    ),
    "fairshare.patch_plan._waiting_note": (),  # a Waiting
    "trainingjob.conditions.conditions_of": (),  # a JobResult
    "trainingjob.messages._admitted": (),  # the reason of an earlier release of capacity
    "trainingjob.messages.not_running_after_the_end": (training.SUCCEEDED, training.FAILED),
    "trainingjob.messages.scaling": (training.SCALING_UP, training.SCALING_DOWN),
    "trainingjob.waiting_condition.waiting_condition": (),  # a _Reason
    "trainingjob.waiting_condition._not_admitted": (),  # a WaitingNote of the record
    "trainingjob.waiting_condition._pods_not_ready": (),
    "trainingjob.waiting_condition._create_rejected": tuple(Cause),
    "trainingjob.waiting_condition._most_frequent_failure": tuple(Cause),
    "trainingjob.events._result": (training.SUCCEEDED, training.FAILED),
    "trainingjob.events._waiting": tuple(NOT_CAPACITY),
}
"""Calls with a reason from another module, and the values it may have; none where they are found at their own source."""


@dataclass(slots=True)
class Reasons:
    """The reasons that the code can write for one kind."""

    conditions: set[str] = field(default_factory=set)
    events: set[str] = field(default_factory=set)
    passed_on: set[str] = field(default_factory=set)
    """The calls of `PASSED_ON` that were found."""


@cache
def written_reasons(kind: str) -> Reasons:
    """The reasons of conditions and events of that kind."""
    found = Reasons()
    for package, its_kind in KINDS_OF_PACKAGES.items():
        for path in sorted((PRODUCT / package).rglob("*.py")) if its_kind == kind else ():
            _collect(path, found)
    return found


def _collect(path: Path, found: Reasons) -> None:
    name = ".".join(path.relative_to(PRODUCT).with_suffix("").parts)
    source = path.read_text()
    if not any(f"{word}(" in source for word in (*CONDITIONS, *EVENTS)):
        return
    module = Module(ast.parse(source), vars(importlib.import_module(f"raytide.{name}")))
    for calls, reasons in ((CONDITIONS, found.conditions), (EVENTS, found.events)):
        for call, function in module.calls(calls):
            for argument, position in calls[_name(call.func)].items():
                for value in module.argument(call, argument, position, function):
                    if value is not None:
                        reasons.add(value)
                        continue
                    site = f"{name}.{function.name if function else ''}"
                    if site not in PASSED_ON:
                        raise UnknownSourceError(
                            f"{site} passes a reason on: add it to PASSED_ON in tools/generators/reason_sources.py with its values"
                        )
                    reasons.update(PASSED_ON[site])
                    found.passed_on.add(site)
    found.conditions.discard("")
    found.events.discard("")


# --- evaluation --------------------------------------------------------------------------------------------------------------

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """The syntax tree of a module, and its names at run time."""

    def __init__(self, tree: ast.Module, names: Mapping[str, Any]) -> None:
        self._names = names
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, Function)}
        self._calls: list[tuple[ast.Call, Function | None]] = list(_calls_in(tree, None))

    def calls(self, names: Mapping[str, Any]) -> Iterator[tuple[ast.Call, Function | None]]:
        """The calls of these names, each with the innermost function around it."""
        return ((call, function) for call, function in self._calls if _name(call.func) in names)

    def argument(self, call: ast.Call, name: str, position: int, function: Function | None) -> Iterator[str | None]:
        """The values of that argument; nothing where the call leaves it out, and None for a value of unknown origin."""
        if any(isinstance(each, ast.Starred) for each in call.args[: position + 1]):
            yield None
            return
        node = next((each.value for each in call.keywords if each.arg == name), None)
        if node is None and position < len(call.args):
            node = call.args[position]
        if node is not None:
            yield from self._values(node, function, ())

    def _values(self, node: ast.expr, function: Function | None, path: tuple[ast.expr, ...]) -> Iterator[str | None]:
        if node in path:
            return
        path = (*path, node)
        match node:
            case ast.IfExp():
                yield from self._values(node.body, function, path)
                yield from self._values(node.orelse, function, path)
            case ast.BoolOp():
                for each in node.values:
                    yield from self._values(each, function, path)
            case ast.Name() if function is not None and (found := list(self._local(node.id, function, path))):
                yield from found
            case ast.Call(func=ast.Name()) if node.func.id in self._functions:
                called = self._functions[node.func.id]
                for each in ast.walk(called):
                    if isinstance(each, ast.Return) and each.value is not None:
                        yield from self._values(each.value, called, path)
            case _:
                yield self._constant(node)

    def _local(self, name: str, function: Function, path: tuple[ast.expr, ...]) -> Iterator[str | None]:
        """The values of a parameter or a variable of the function; nothing if it has none of that name."""
        if name in _parameters(function):
            yield from self._passed(name, function, path)
            return
        for each in _assigned(name, function):
            yield from self._values(each, function, path)

    def _passed(self, parameter: str, function: Function, path: tuple[ast.expr, ...]) -> Iterator[str | None]:
        """The values that this module passes for the parameter; None if only other modules call the function."""
        callers = [(call, caller) for call, caller in self._calls if _name(call.func) == function.name]
        if not callers:
            yield None
        for call, caller in callers:
            position = _parameters(function).index(parameter)
            node = next((each.value for each in call.keywords if each.arg == parameter), None)
            if node is None and position < len(call.args):
                node = call.args[position]
            if node is not None:
                yield from self._values(node, caller, path)

    def _constant(self, node: ast.expr) -> str | None:
        """The text of a constant of this or another module; None for any other expression."""
        if not isinstance(node, ast.Constant | ast.Name | ast.Attribute):
            return None
        try:
            value = eval(compile(ast.Expression(node), "", "eval"), dict(self._names))  # noqa: S307 - the operator's own code
        except (NameError, AttributeError):
            return None
        return str(value) if isinstance(value, str) else None


def _calls_in(node: ast.AST, function: Function | None) -> Iterator[tuple[ast.Call, Function | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, function
        yield from _calls_in(child, child if isinstance(child, Function) else function)


def _name(called: ast.expr) -> str:
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _assigned(name: str, function: Function) -> Iterator[ast.expr]:
    """What the function assigns to that name; the tuple itself where it unpacks one."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(target)):
                    yield node.value


# --- docstrings --------------------------------------------------------------------------------------------------------------


def docstring_of(owner: ModuleType | type, constant: str) -> str:
    """The docstring after that constant of the module, or member of the class; empty if there is none."""
    return _docstrings(owner).get(constant, "")


def function_docstring(function: Callable[..., Any]) -> str:
    """Its docstring without indentation."""
    return inspect.getdoc(function) or ""


@cache
def _docstrings(owner: ModuleType | type) -> dict[str, str]:
    source = inspect.getsource(owner)
    body = ast.parse(source).body
    if isinstance(owner, type) and isinstance(body[0], ast.ClassDef):
        body = body[0].body
    found = {}
    for node, following in pairwise(body):
        is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if is_text and isinstance(target, ast.Name):
            found[target.id] = inspect.cleandoc(str(following.value.value))
    return found
