"""Pages of the documentation site that are written from code: fields of the CRDs, commands, and metrics.

Each function takes values and returns Markdown; `relink` prepares a page of the repository for the site. Called by
tools/builders/docs_site.py; the pages are not committed, so that they cannot be out of date.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

_CODE: Final = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:")
_TYPES: Final = {"integer": "integer", "number": "number", "string": "string", "boolean": "boolean"}


def relink(text: str, page: str, is_page: Callable[[str], bool], source: str) -> str:
    """The page with links to files that the site does not have leading to the source repository.

    `page` is its path in the repository, `source` the address of the repository's files.
    """

    def changed(link: re.Match[str]) -> str:
        begin, target, end = link.groups()
        if _SCHEME.match(target):
            return link.group()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        return link.group() if is_page(path) else f"{begin}{source}/{path}{end}"

    parts = _CODE.split(text)
    return "".join(part if number % 2 else _LINK.sub(changed, part) for number, part in enumerate(parts))


# --- fields of the CRDs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field:
    """One described field."""

    path: str
    type: str
    default: str
    description: str


def described_fields(schema: Mapping[str, Any], path: str = "") -> Iterator[Field]:
    """The fields below the schema that have a description, in its order; those of pods and volumes have none, they are Kubernetes'."""
    for name, field in (schema.get("properties") or {}).items():
        there = f"{path}.{name}" if path else name
        if field.get("description"):
            default = "" if field.get("default") is None else str(field["default"])
            yield Field(there, _type_of(field), default, field["description"])
        items = field.get("items")
        yield from described_fields(items or field, f"{there}[]" if items else there)


def _type_of(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {_type_of(field.get('items') or {})}s"
    if field.get("type") == "object" and "additionalProperties" in field:
        return "map"
    return _TYPES.get(field.get("type", ""), "object")


def fields_page(definition: Mapping[str, Any]) -> str:
    """The reference of one CRD: what its described fields mean."""
    kind, group = definition["spec"]["names"]["kind"], definition["spec"]["group"]
    stored = next(version for version in definition["spec"]["versions"] if version["storage"])
    introduction = (
        f"# {kind}\n\n`apiVersion: {group}/{stored['name']}`, `kind: {kind}`. Written from the "
        "CustomResourceDefinition of this version. Fields of pod templates, volumes and probes are those of Kubernetes; "
        "`kubectl explain` shows all fields.\n"
    )
    sections = [introduction]
    fields = list(described_fields(stored["schema"]["openAPIV3Schema"]))
    for part in ("spec", "status"):
        rows = [field for field in fields if field.path.startswith(f"{part}.")]
        lines = (
            f"| `{row.path.removeprefix(f'{part}.')}` | {row.type} | {_cell(row.default)} | {_cell(row.description)} |\n"
            for row in rows
        )
        sections.append(f"## {part}\n\n| field | type | default | meaning |\n|---|---|---|---|\n{''.join(lines)}")
    return "\n".join(sections)


# --- commands ----------------------------------------------------------------------------------------------------------------


def root_context(root: click.Group) -> click.Context:
    """The context of `raytide` without arguments."""
    return click.Context(root, info_name="raytide", max_content_width=100, **root.context_settings)


def walk(context: click.Context) -> Iterator[click.Context]:
    """The context of a command, and those of its subcommands that the help lists, each before its own."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            below = context.command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from walk(click.Context(below, info_name=name, parent=context))


def commands_page(root: click.Group, names: Iterable[str]) -> str:
    """The help of the command and of its subcommands with these names."""
    context = root_context(root)
    sections = ["# Commands\n\nThe output of `--help` of this version.\n"]
    for name in names:
        command = root.get_command(context, name)
        if command is None:
            raise LookupError(f"there is no command {name}")
        sections += map(_help_of, walk(click.Context(command, info_name=name, parent=context)))
    return "\n".join(sections)


def _help_of(context: click.Context) -> str:
    path = context.command_path
    return f"{'#' * len(path.split())} {path}\n\n```text\n{context.command.get_help(context)}\n```\n"


# --- metrics -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as its registry describes it."""

    name: str
    type: str
    labels: tuple[str, ...]
    documentation: str


def metrics_page(by_program: Mapping[str, Iterable[Metric]]) -> str:
    """The metrics of each program by name."""
    sections = [
        "# Metrics\n\nWritten from the registries of this version; `process_…` are those of the Prometheus client.\n"
    ]
    for program, metrics in by_program.items():
        rows = (
            f"| `{one.name}` | {one.type} | {', '.join(f'`{label}`' for label in one.labels)} | {_cell(one.documentation)} |\n"
            for one in sorted(metrics, key=lambda metric: metric.name)
        )
        sections.append(f"## {program}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n{''.join(rows)}")
    return "\n".join(sections)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
