"""Write the generated parts of the chart, or check that they are current.

From the operator's permissions (raytide/api/rbac_rules.py): the rules of its roles, and the table in SECURITY.md. From the schema and
the defaults of the values: the tables in the chart's README. With `--check` it fails if a file differs, or if the version of the chart
or the sandbox is not that of the package. The rest of the chart is written by hand.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from raytide.api.constants import VERSION
from raytide.api.meta import RAYCLUSTERS, TRAININGJOBS
from raytide.api.rbac_rules import PERMISSIONS, Permission, Scope, permissions_in

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "raytide"
SANDBOX = ROOT / "sandbox" / "pyproject.toml"
RULES = CHART / "templates" / "_rules.tpl"
SWITCHES = {RAYCLUSTERS: "rayCluster.enabled", TRAININGJOBS: "trainingJob.enabled"}
MARKS = "<!-- {0}: written by tools/generators/chart.py -->\n", "<!-- end of {0} -->\n"
WHERE = {
    Scope.WATCHED: "watched namespaces",
    Scope.OWN: "its own namespace",
    Scope.CLUSTER: "cluster",
    Scope.EVERYWHERE: "all namespaces",
}


def build_rules() -> str:
    """The template with one block of rules per scope."""
    blocks = ["{{/* Written by tools/generators/chart.py from raytide/api/rbac_rules.py: change it there. */}}\n"]
    for scope in Scope:
        rules = "".join(_rule(permission) for permission in permissions_in(scope))
        blocks.append(f'\n{{{{- define "raytide.rules.{scope.value}" -}}}}\n{rules}{{{{- end -}}}}\n')
    return "".join(blocks)


def _rule(permission: Permission) -> str:
    optional = "" if permission.is_required else "optional: "
    conditions = [value for value, _ in _conditions(permission)]
    test = conditions[0] if len(conditions) == 1 else f"and {' '.join(f'({each})' for each in conditions)}"
    only, end = (f"{{{{- if {test} }}}}\n", "{{- end }}\n") if conditions else ("", "")
    return (
        f"{only}"
        f"# {optional}to {permission.purpose}\n"
        f'- apiGroups: ["{permission.group}"]\n'
        f"  resources: [{permission.resource}]\n"
        f"  verbs: [{', '.join(permission.verbs)}]\n"
        f"{end}"
    )


def _conditions(permission: Permission) -> Iterator[tuple[str, str]]:
    """The values with which the chart grants it, each as a condition in a template and as text."""
    if permission.kind is not None:
        yield f".Values.{SWITCHES[permission.kind]}", f"`{SWITCHES[permission.kind]}`"
    if permission.feature:
        section, _, gate = permission.feature.value.partition("featureGates.")
        condition = f'contains "{gate}=true" (include "raytide.featureGates" .)' if gate else f".Values.{section}"
        yield condition, f"`{permission.feature.value}`"
    if permission.mode:
        yield f'eq .Values.autoscaler.mode "{permission.mode}"', f"`autoscaler.mode: {permission.mode}`"


def build_rights_table() -> str:
    """The rows of SECURITY.md."""
    lines = ["| API group | resource | verbs | where | needed to | only with |", "|---|---|---|---|---|---|"]
    for permission in PERMISSIONS:
        group = f"`{permission.group}`" if permission.group else "core"
        optional = "" if permission.is_required else " (optional)"
        only = ", ".join(words for _, words in _conditions(permission))
        verbs = ", ".join(permission.verbs)
        where = WHERE[permission.scope]
        lines.append(
            f"| {group} | `{permission.resource}` | {verbs} | {where} | {permission.purpose}{optional} | {only} |"
        )
    return "\n".join(lines) + "\n"


def build_values_table() -> str:
    """The rows of the chart's README."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for path, node in described(schema):
        if is_of_kuberay(node):
            continue
        default: Any = defaults
        for word in path.split("."):
            default = default.get(word, ...) if isinstance(default, dict) else ...
        if default is not ...:
            lines.append(f"| `{path}` | {_shown(default)} | {node['description']} |")
    return "\n".join(lines) + "\n"


def build_kuberay_table() -> str:
    """The rows of values of KubeRay's chart that have no default here."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    lines = ["| value of KubeRay's chart | here |", "|---|---|"]
    lines += [f"| `{path}` | {node['description']} |" for path, node in described(schema) if is_of_kuberay(node)]
    return "\n".join(lines) + "\n"


def is_of_kuberay(node: dict[str, Any]) -> bool:
    """Whether the value exists only for compatibility with KubeRay's chart."""
    return node.get("$comment") == "KubeRay"


def described(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and schema of each value that has a description."""
    for name, node in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        if "description" in node:
            yield here, node
        else:
            yield from described(node, here)


def _shown(default: Any) -> str:
    return "" if default == "" else f"`{json.dumps(default)}`".replace('`"', "`").replace('"`', "`")


def between_marks(text: str, mark: str, rows: str) -> str:
    """The text with these rows between the two marks; exits unless the marks occur once."""
    begin, end = (line.format(mark) for line in MARKS)
    new, count = re.subn(re.escape(begin) + ".*?" + re.escape(end), lambda _: begin + rows + end, text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"expected one place for {mark!r}, found {count}")
    return new


def build_all() -> dict[Path, str]:
    """Text of each generated file by its path."""
    readme, security = CHART / "README.md", ROOT / "SECURITY.md"
    return {
        RULES: build_rules(),
        readme: between_marks(
            between_marks(readme.read_text(), "values", build_values_table()), "kuberay", build_kuberay_table()
        ),
        security: between_marks(security.read_text(), "rights", build_rights_table()),
    }


def _version(project: Path) -> str:
    return str(tomllib.loads(project.read_text())["project"]["version"])


def odd_versions() -> list[str]:
    """Errors about versions of chart and sandbox that differ from that in raytide/api/constants.py."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    errors = [] if _version(SANDBOX) == VERSION else [f"{SANDBOX}: version is not {VERSION}"]
    return errors + [
        f"{CHART / 'Chart.yaml'}: {field} is not {VERSION}"
        for field in ("version", "appVersion")
        if chart[field] != VERSION
    ]


def main() -> None:
    """Write the files, or with `--check` compare them."""
    built = build_all()
    if "--check" in sys.argv[1:]:
        errors = odd_versions()
        errors += [
            f"{path} is not current, run `make chart`" for path, text in built.items() if path.read_text() != text
        ]
        if errors:
            sys.exit("\n".join(errors))
        return
    for path, text in built.items():
        if path.read_text() != text:  # another process, such as a scanner, may read the chart
            path.write_text(text)


if __name__ == "__main__":
    main()
