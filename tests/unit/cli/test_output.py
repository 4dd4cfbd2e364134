"""`-o json|yaml` of all commands (raytide.cli.output)."""

import json

import click
import pytest
import yaml

import raytide.cli
from raytide.cli.output import OUTPUT_HELP, encoded
from raytide_sandbox.cli import status

VALUE = {"name": "caf\u00e9 \u202e \x1b[31m", "sizes": [1, 2]}
WITHOUT = {"autoscaler", "operator", "print", "diagnose", "ui", "sandbox"}
"""Programs that run until they are ended, what is YAML or a file by nature, and the sandbox, a distribution of its own."""


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_read_the_value_and_a_terminal_gets_ascii(output, read):
    text = encoded(output, VALUE)
    assert read(text) == VALUE
    assert text.isascii()
    assert "\x1b" not in text


def leaves(command, name="raytide"):
    if not isinstance(command, click.Group):
        return [(name, command)]
    context = click.Context(command)
    names = [each for each in command.list_commands(context) if each not in WITHOUT]
    return [leaf for each in names for leaf in leaves(command.get_command(context, each), each)]


def test_each_command_that_prints_a_result_has_the_option():
    formats = {
        name: {choice for each in command.params if "-o" in each.opts for choice in each.type.choices}
        for name, command in leaves(raytide.cli.main)
    }
    assert {"why", "top", "plan", "scale", "apply"} <= formats.keys()
    assert {name for name, choices in formats.items() if not choices >= {"json", "yaml"}} == set()


def test_the_option_is_described_with_the_same_words_everywhere():
    commands = {**dict(leaves(raytide.cli.main)), "sandbox status": status}
    helps = {name: each.help for name, command in commands.items() for each in command.params if "-o" in each.opts}
    assert set(helps.values()) == {OUTPUT_HELP}, helps
