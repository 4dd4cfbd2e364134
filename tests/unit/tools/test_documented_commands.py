"""Commands of the documentation exist: commands and options of raytide, files, targets of make, chart values."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import click
import pytest
import yaml

from raytide.cli import main as command
from support import documented_commands as documented

ROOT = Path(__file__).resolve().parents[3]
ALL = [each for page in documented.pages() for each in documented.commands(page)]
OPERATORS = {"|", "&&", ";", "&", "(", ")", "||"}
SPAN = re.compile(r"`([^`]+)`")


def simple_commands(text: str) -> Iterator[list[str]]:
    """The words of each simple command of a line, without variables in front and redirections behind."""
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="|&;()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word not in OPERATORS:
            words.append(word)
            continue
        while words and re.match(r"\w+=", words[0]):
            words.pop(0)
        end = next((n for n, each in enumerate(words) if each in {">", ">>"}), len(words))
        if words[:end]:
            yield words[:end]
        words = []


def prose(page: str) -> str:
    """The page without its blocks."""
    return re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        pytest.param("```console\n$ a  # why\nshown\n$ b\n```\n", ["a", "b"], id="prompts"),
        pytest.param("```console\na\nb \\\n  c\n```\n", ["a", "b \\\n  c"], id="no prompts"),
        pytest.param("```console\n$ a '[\n b]'\n```\n", ["a '[\n b]'"], id="quoted lines"),
        pytest.param("```console\n$ a\n```\n```console\nshown\n```\n", ["a"], id="an output alone"),
        pytest.param("```sh\n#!/bin/sh\na\nb\n```\n", ["#!/bin/sh\na\nb"], id="a script"),
        pytest.param("```text\nshown\n```\n", [], id="text"),
        pytest.param("```text\n$ a\nshown\n```\n", ["a"], id="text with a prompt"),
        pytest.param("```python\na\n```\n", [], id="a program"),
    ],
)
def test_the_commands_of_a_page(tmp_path, monkeypatch, block, expected):
    (tmp_path / "page.md").write_text(block)
    monkeypatch.setattr(documented, "ROOT", tmp_path)
    assert [each.typed for each in documented.commands("page.md")] == expected


def test_every_command_that_a_test_types_is_on_its_page():
    for name, by_page in documented.SESSIONS.items():
        for page, beginnings in by_page.items():
            texts = [command.text for command in documented.commands(page)]
            missing = [begin for begin in beginnings if not any(text.startswith(begin) for text in texts)]
            assert missing == [], f"session {name}: {page}"


def parse(words: list[str]) -> None:
    """Raises for a subcommand or an option that does not exist, and for a value that is none of an option's choices."""
    context, found = click.Context(command, info_name="raytide"), command
    while isinstance(found, click.Group) and words and not words[0].startswith("-"):
        below = found.get_command(context, words[0])
        assert below is not None, f"no command {words[0]}"
        context, found, words = (
            click.Context(below, info_name=words[0], parent=context),
            below,
            words[1:],
        )
    values, _, _ = found.make_parser(context).parse_args(args=list(words))
    for param in found.params:
        value = values.get(param.name)
        if isinstance(param.type, click.Choice) and isinstance(value, str):
            param.type.convert(value, param, context)


def raytides(text: str) -> Iterator[list[str]]:
    """The arguments of each call of raytide in a line, also of `kubectl raytide`."""
    for words in simple_commands(text):
        if words[:2] == ["kubectl", "raytide"]:
            yield words[2:]
        elif words[0] == "raytide":
            yield words[1:]


@pytest.mark.parametrize(
    "words", [pytest.param(words, id=" ".join(words)) for each in ALL for words in raytides(each.text)]
)
def test_every_call_of_raytide_parses(words):
    parse(words)


@pytest.mark.parametrize("page", documented.pages())
def test_every_call_of_raytide_inside_a_text_parses(page):
    for text in SPAN.findall(prose(page)):
        is_call = re.match(r"(kubectl )?raytide [a-z]", text) and ", " not in text  # else a line of a log
        for words in raytides(re.sub(r"\[[^]]*\]|…|<[^>]*>", "", text)) if is_call else ():
            with suppress(click.BadOptionUsage):  # an option that is named without a value
                parse(words)


def test_wrong_calls_of_raytide_are_found():
    for text in ("raytide dance", "raytide why demo --loud", "raytide why demo -o xml"):
        with pytest.raises((click.UsageError, AssertionError)):
            parse(text.split()[1:])


MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))


def calls_of_make() -> Iterator[tuple[str, ...]]:
    """The arguments of each call of make, in the blocks of commands and inside of texts."""
    texts = [each.typed for each in ALL]
    for page in documented.pages():
        texts += (text for text in SPAN.findall(prose(page)) if text.startswith("make "))
    for text in texts:
        yield from (tuple(words[1:]) for words in simple_commands(re.sub("<[^>]*>", "X", text)) if words[0] == "make")


@pytest.mark.parametrize("arguments", [pytest.param(each, id=" ".join(each)) for each in sorted({*calls_of_make()})])
def test_every_target_of_make_and_its_variables_exist(arguments):
    names = {word.split("=")[0] for word in arguments if "=" in word}
    of_bench = set(re.findall(r'environ(?:\.get\(|\[)"([A-Z]+)"', (ROOT / "bench/beside_kuberay.py").read_text()))
    assert names <= of_bench | set(re.findall(r"\$\(([A-Z_]+)\)", MAKEFILE))
    assert [word for word in arguments if "=" not in word and word not in TARGETS] == []
    assert {*arguments} & TARGETS


def test_every_value_of_the_chart_that_a_command_sets_exists():
    values = yaml.safe_load((ROOT / "helm/raytide/values.yaml").read_text())
    found = [
        word for each in ALL for words in simple_commands(each.text) if words[0] == "helm" for word in settings(words)
    ]
    assert len(found) > 3
    for setting in found:
        here = values
        for key in setting.split("=")[0].split("."):
            assert key in here, setting
            here = here[key]


def settings(words: list[str]) -> Iterator[str]:
    for name, value in pairwise(words):
        if name in {"--set", "--set-string"}:
            yield value


def test_every_file_that_a_command_applies_exists():
    found = [
        (each.page, words)
        for each in ALL
        for words in simple_commands(each.text)
        if words[0] == "kubectl" and "-f" in words
    ]
    assert len(found) > 5
    for page, words in found:
        file = words[words.index("-f") + 1]
        is_described = f"`{file}`" in (ROOT / page).read_text()
        assert words[1] == "logs" or (ROOT / file).exists() or is_described, f"{page}: {file}"
