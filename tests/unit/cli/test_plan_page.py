"""docs/plan.md shows the actual output of `raytide plan`."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from raytide.cli import main
from raytide.cli.plan import command

PAGE = (Path(__file__).parents[3] / "docs" / "plan.md").read_text()
NAMES = ("cluster.yaml", "new.yaml", "ray.yaml")
FILES = dict(zip(NAMES, re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL), strict=True))
FILES["broken.yaml"] = FILES["cluster.yaml"].replace('cpu: "32"', "cpu: lots")
SHOWN = {
    block.partition("\n")[0]: block.partition("\n")[2]
    for block in re.findall(r"^```console\n\$ (raytide plan .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    if "#" not in block.partition("\n")[0]
}


def test_the_page_has_examples():
    assert len(SHOWN) == 5


@pytest.mark.parametrize("args", SHOWN)
def test_every_example_prints_what_the_page_shows(args, tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, args.split()[1:]).output == SHOWN[args]


def test_every_flag_is_in_the_table():
    flags = {flag for param in command.params for flag in param.opts}
    assert {flag for flag in flags if f"`{flag}" not in PAGE} == set()
