"""CEL rules of `x-kubernetes-validations`.

Compiles one entry to a `Rule`; evaluated with `self` and perhaps `oldSelf`, the rule returns None or the text of its
rejection, worded as the API server does. A rule with an unknown function or variable is rejected when it is compiled,
never skipped. Deviation: values of format date-time, duration and byte reach rules as strings. Called by `model.py`
(compile) and `cel_validation.py` (evaluate).
"""

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Final

# The package imports its own command line and a terminal toolkit with it, which costs a third of a second at start.
sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))

import cel  # noqa: E402 - after the line above
from cel.stdlib import STDLIB_FUNCTIONS, add_stdlib_to_context  # noqa: E402 - same

_CORE_NAMES: Final = """
_+_ _-_ _*_ _/_ _%_ _<_ _<=_ _>_ _>=_ _==_ _!=_ _&&_ _||_ _?_:_ _[_] !_ -_ @in @not_strictly_false
size contains startsWith endsWith matches int uint double string bytes timestamp duration dyn type
getFullYear getMonth getDayOfMonth getHours getMinutes getSeconds hasValue value orValue or of none
"""
_RESERVED_NAMES: Final = """
true false null in as break const continue else for function if import let loop package namespace return var void while
"""
_CORE: Final = frozenset(_CORE_NAMES.split())
_RESERVED: Final = frozenset(_RESERVED_NAMES.split())
_EXTRAS: Final = frozenset(name.rpartition(".")[2] for name in STDLIB_FUNCTIONS)
_NAMESPACES: Final = frozenset({"self", "oldSelf", "optional", "math", "sets", "strings", "lists", "base64"})
_TYPE_NAMES: Final = frozenset({"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type"})
_LOOP_VARIABLE: Final = re.compile(r"\.\s*(?:all|exists|exists_one|filter|map)\s*\(\s*(\w+)\s*,")

MAX_MESSAGE_BYTES: Final = 5120
REASONS: Final = frozenset({"FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"})


class RuleError(Exception):
    """A rule that cannot be compiled, or that calls a function not implemented here."""


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """Why a rule rejects a value; `is_broken` if it could not be evaluated, which ratcheting does not ignore."""

    text: str
    is_broken: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled rule."""

    text: str
    message: str
    reason: str
    field_path: str
    is_transition: bool
    """True when the rule uses `oldSelf`; such a rule is not ratcheted, it must allow old values itself."""
    is_old_self_optional: bool
    program: cel.Program
    message_text: str
    """The messageExpression."""
    message_program: cel.Program | None

    def violation_of(self, scope: "Scope") -> RuleViolation | None:
        """Why the value is rejected, or None; a rule that fails to evaluate rejects it too."""
        if self.is_transition and not scope.has_old and not self.is_old_self_optional:
            return None
        context = scope.optional if self.is_old_self_optional else scope.plain
        try:
            answer = self.program.execute(context)
        except Exception as error:  # noqa: BLE001 - the library raises many types; all are "the rule failed"
            return RuleViolation(f"{_fault(error)} evaluating rule: {self.message or self.text}", is_broken=True)
        return None if answer is True else RuleViolation(self._detail(context))

    def _detail(self, context: cel.Context) -> str:
        message = _evaluated_message(self.message_program, context) if self.message_program is not None else ""
        return message or self.message or f"failed rule: {self.text}"


_READ: Final = re.compile(r"\b(?:self|oldSelf)\b(?:\s*\.\s*hasValue\s*\(\s*\)|\s*\.\s*(\w+)\b(?!\s*\())?")


def fields_read(rules: Iterable[Rule]) -> frozenset[str] | None:
    """The (escaped) fields of `self` and `oldSelf` that the rules and their messages name; None if they may read others."""
    found: set[str] = set()
    for rule in rules:
        for use in _READ.finditer(f"{rule.text}\n{rule.message_text}"):
            if use[1]:
                found.add(use[1])
            elif use[0] in ("self", "oldSelf"):  # the value itself, an index or a macro
                return None
    return frozenset(found)


class Scope:
    """The variables of the rules of one place: the value and, on an update, the old one; converted on first use."""

    def __init__(self, new: Any, old: Any, *, has_old: bool) -> None:
        self.has_old = has_old
        self._new, self._old = new, old

    @cached_property
    def plain(self) -> cel.Context:
        """The context of rules that use `oldSelf` as a value, or not at all."""
        context = self._context()
        if self.has_old:
            context.add_variable("oldSelf", self._old)
        return context

    @cached_property
    def optional(self) -> cel.Context:
        """The context of rules with `optionalOldSelf`."""
        context = self._context()
        context.add_variable("oldSelf", cel.OptionalValue.of(self._old) if self.has_old else cel.OptionalValue.none())
        return context

    def _context(self) -> cel.Context:
        context = cel.Context()
        add_stdlib_to_context(context)
        context.add_variable("self", self._new)
        return context


def _evaluated_message(program: cel.Program, context: cel.Context) -> str:
    try:
        message = program.execute(context)
    except Exception:  # noqa: BLE001 - as above: a broken message falls back to the static one
        return ""
    message = message.strip() if isinstance(message, str) else ""
    return "" if "\n" in message or len(message.encode()) > MAX_MESSAGE_BYTES else message


def _fault(broken: BaseException) -> str:
    if isinstance(broken, KeyError):
        return f"no such key: {str(broken).strip(chr(39))}"
    return "no such overload" if isinstance(broken, TypeError) else str(broken)


def _compile(text: str, word: str) -> cel.Program:
    try:
        program = cel.compile(text)
    except Exception as error:  # noqa: BLE001 - the library documents ValueError only, its parser raises others too
        raise RuleError(f"{word}: Invalid value: {text!r}: compilation failed: {error}") from None
    unknown = sorted(set(program.functions()) - _CORE - _EXTRAS)
    if unknown:
        raise RuleError(f"{word}: Invalid value: {text!r}: function not implemented by this API server: {unknown[0]}")
    undeclared = sorted(set(program.variables()) - _NAMESPACES - _TYPE_NAMES - set(_LOOP_VARIABLE.findall(text)))
    if undeclared:
        raise RuleError(f"{word}: Invalid value: {text!r}: undeclared reference to '{undeclared[0]}'")
    return program


def compile_rule(rule: Mapping[str, Any]) -> Rule:
    """Compile one entry of `x-kubernetes-validations`; raises `RuleError` with the field and the error."""
    text = str(rule.get("rule", "")).strip()
    if not text:
        raise RuleError("rule: Required value")
    program = _compile(text, "rule")
    is_transition = "oldSelf" in program.variables()
    is_old_self_optional = bool(rule.get("optionalOldSelf"))
    if is_old_self_optional and not is_transition:
        raise RuleError("optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule")
    reason = rule.get("reason") or "FieldValueInvalid"
    if reason not in REASONS:
        raise RuleError(f'reason: Unsupported value: "{reason}"')
    expression = str(rule.get("messageExpression", "")).strip()
    message_program = _compile(expression, "messageExpression") if expression else None
    return Rule(
        text=text,
        message=str(rule.get("message", "")).strip(),
        reason=reason,
        field_path=str(rule.get("fieldPath", "")),
        is_transition=is_transition,
        is_old_self_optional=is_old_self_optional,
        program=program,
        message_text=expression,
        message_program=message_program,
    )


def escape_name(name: str) -> str | None:
    """A declared property's name in rules (`a-b` is `a__dash__b`), None if rules cannot access it."""
    if name in _RESERVED:
        return f"__{name}__"
    if not name or name[0].isdigit():
        return None
    escaped = name.replace("__", "__underscores__")
    for sign, word in ((".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        escaped = escaped.replace(sign, word)
    return escaped if escaped.isidentifier() else None
