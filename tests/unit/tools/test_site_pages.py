"""Pages of the documentation site that are written from code, and links that lead out of the site."""

from pathlib import Path

import click
import pytest
import yaml

import docs_site
import site_pages
from raytide.cli import COMMANDS
from raytide.cli import main as command

ROOT = Path(__file__).resolve().parents[3]
SOURCE = "https://example.com/blob/main"
ON_SITE = {"README.md", "docs/guide.md", "docs/figures/one.svg"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("[a](guide.md)", None, id="a page of the site"),
        pytest.param("[a](../README.md#install)", None, id="a heading of a page of the site"),
        pytest.param("![a](figures/one.svg)", None, id="a picture of the site"),
        pytest.param("[a](#here)", None, id="a heading of the same page"),
        pytest.param("[a](https://example.org/x.py)", None, id="an address"),
        pytest.param("[a](../tools/x.py)", f"[a]({SOURCE}/tools/x.py)", id="a file that the site does not have"),
        pytest.param("[a](../tools)", f"[a]({SOURCE}/tools)", id="a folder"),
        pytest.param("[a](gone.md#b)", f"[a]({SOURCE}/docs/gone.md#b)", id="a page that the site does not have"),
        pytest.param("`[a](../x.py)`", None, id="code"),
        pytest.param("```text\n[a](../x.py)\n```", None, id="a block of code"),
        pytest.param(
            "[`a`](../x.py) and [b](../y.py)", f"[`a`]({SOURCE}/x.py) and [b]({SOURCE}/y.py)", id="code as the text"
        ),
    ],
)
def test_links_to_files_that_the_site_does_not_have_lead_to_the_source(text, expected):
    assert site_pages.relink(text, "docs/guide.md", ON_SITE.__contains__, SOURCE) == (expected or text)


def test_described_fields_are_listed_with_type_and_default():
    schema = {
        "properties": {
            "mode": {"type": "string", "enum": ["A", "B"], "description": "Mode."},
            "groups": {
                "type": "array",
                "description": "Groups.",
                "items": {
                    "type": "object",
                    "properties": {
                        "size": {"type": "integer", "description": "Size.", "default": 0},
                        "opaque": {"type": "object"},
                    },
                },
            },
        }
    }
    assert [(one.path, one.type, one.default) for one in site_pages.described_fields(schema, "spec")] == [
        ("spec.mode", "`A` or `B`", ""),
        ("spec.groups", "list of objects", ""),
        ("spec.groups[].size", "integer", "0"),
    ]


@pytest.mark.parametrize("file", ["ray.io_rayclusters.yaml", "paddlepaddle.org_trainingjobs.yaml"])
def test_a_page_of_fields_has_every_described_field(file):
    definition = yaml.load((ROOT / "crds" / file).read_text(), yaml.CSafeLoader)
    page = site_pages.fields_page(definition)
    schema = next(one for one in definition["spec"]["versions"] if one["storage"])["schema"]["openAPIV3Schema"]
    fields = [one for one in site_pages.described_fields(schema) if "." in one.path]
    assert len(fields) > 40
    assert page.count("\n| `") == len(fields)


def test_the_page_of_commands_has_every_command_and_option():
    page = docs_site.generated_pages()["docs/api/commands.md"]
    assert page.count("-h, --help") == page.count("## raytide ")  # click keeps the option that the first call makes
    context = click.Context(command, info_name="raytide")
    for name in COMMANDS:
        found = command.get_command(context, name)
        assert found is not None
        for below in site_pages.walk(click.Context(found, info_name=name, parent=context)):
            assert f"# {below.command_path}\n" in page
            options = [one for one in below.command.params if isinstance(one, click.Option) and not one.hidden]
            assert all(spelled in page for option in options for spelled in option.opts)
    assert "### raytide sandbox up\n" in page


def test_the_page_of_metrics_has_their_labels_and_no_broken_cells():
    metrics = [
        site_pages.Metric("b", "gauge", ("name",), "One | two <three>."),
        site_pages.Metric("a_total", "counter", (), "A."),
    ]
    rows = site_pages.metrics_page({"Operator": metrics}).splitlines()[-2:]
    assert rows == ["| `a_total` | counter |  | A. |", "| `b` | gauge | `name` | One \\| two &lt;three>. |"]
