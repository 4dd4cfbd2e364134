"""docs/why.md and the user guide show the actual output of `raytide why`, every cause and every flag."""

import re
from pathlib import Path

import click

from raytide.api.autoscaler_decision import GroupDecision
from raytide.cli.top import command as top_command
from raytide.cli.why import command
from raytide.cli.why.render import render
from raytide.diagnosis.catalogue import CATALOGUE
from raytide.explain.explain import explain
from raytide.explain.model import Verdict
from support.builders import group
from support.explained import AT_MAXIMUM, HEAD, NOON, SHAPES, UNSCHEDULABLE, decided, of_cluster, waiting_worker, worker

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "why.md").read_text()
GUIDE = (DOCS / "user-guide.md").read_text()


def shown(objects) -> str:
    return click.unstyle(render(explain(objects, NOON), "text"))


def test_the_example_is_what_the_command_prints():
    (example,) = re.findall(r"^```text\n\$ raytide why demo\n(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL)
    record = decided(cluster=(SHAPES,), cpu=GroupDecision(2, why=(AT_MAXIMUM,)))
    pods = (HEAD, worker(0), waiting_worker(1, scheduled=UNSCHEDULABLE))
    assert example == shown(of_cluster(*pods, groups=(group(replicas=2, high=2),), record=record))


def test_the_example_of_the_guide_is_a_part_of_what_the_command_prints():
    (example,) = re.findall(r"^```text\n\$ raytide why big\n(.*?)\n```", GUIDE, re.MULTILINE | re.DOTALL)
    pods = (waiting_worker(i, scheduled=UNSCHEDULABLE) for i in range(2))
    text = shown(of_cluster(HEAD, *pods)).replace("default/demo", "default/big")
    for part in example.replace("2026-11-21T19:58:07Z", "2026-01-01T12:00:00Z").split("\n…\n"):
        assert part in text


def test_the_table_has_every_cause_with_its_stage():
    rows = re.findall(r"^\| (`[^|]+`) \| (\w+) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    listed = {name: (stage, "†" in fix) for names, stage, fix in rows for name in re.findall(r"`(\w+)`", names)}
    assert listed == {
        reason: (entry.stage.value, entry.is_permanent) for reason, entry in CATALOGUE.items() if entry.holder
    }


def test_every_flag_and_exit_code_is_on_the_page():
    params = [*command.params, *top_command.params]
    flags = {flag for param in params if isinstance(param, click.Option) for flag in param.opts}
    assert {flag for flag in flags if f"`{flag}" not in PAGE} == set()
    codes = {verdict.exit_code for verdict in Verdict} | {1, 2}
    assert {code for code in codes if f"\n| {code} | " not in PAGE} == set()
