"""Every command of the documentation has a test that types it, and exists: command, options, files, targets, chart values."""

import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import click
import pytest
import yaml

import documented_commands as documented
from integration.test_quickstart import EXAMPLES
from raytide.cli import main as command
from unit.cli.test_plan_page import SHOWN

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


def test_every_command_is_run_or_skipped_with_a_reason_and_few_are_skipped():
    found = documented.inventory()
    assert list(documented.faults(found)) == []
    assert found.count > 100


def test_a_command_without_a_test_is_a_fault(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("```console\n$ raytide why demo\n$ raytide dance\n```\n")
    monkeypatch.setattr(documented, "ROOT", tmp_path)
    found = documented.Inventory({}, {}, {each.typed: each.page for each in documented.commands("README.md")})
    texts = {
        "README.md: no test runs this command: raytide why demo",
        "README.md: no test runs this command: raytide dance",
    }
    monkeypatch.setattr(documented, "SESSIONS", {})
    assert texts <= set(documented.faults(found))


def test_too_many_skipped_commands_are_a_fault(monkeypatch):
    monkeypatch.setattr(documented, "SESSIONS", {})
    monkeypatch.setattr(documented, "SKIPPED", {})
    run, skipped = {str(n): "" for n in range(94)}, {f"s{n}": "" for n in range(6)}
    assert list(documented.faults(documented.Inventory(run, skipped, {}))) == [
        "more than 5% of the commands are skipped: 6 of 100"
    ]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        pytest.param("make e2e", "make e2e", id="the same words"),
        pytest.param("make e2e ARGS=--keep", "make e2e", id="more words"),
        pytest.param("make e2e-node", None, id="a longer word"),
    ],
)
def test_a_command_is_skipped_by_its_first_words(typed, expected):
    assert documented.skipped_as(typed) == expected


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


# --- that the tests type them ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", documented.SESSIONS)
def test_each_session_is_typed_by_its_test(name):
    text = (ROOT / documented.TESTS_OF_SESSIONS[name]).read_text()
    pages = documented.SESSIONS[name]
    if name == "sandbox":
        assert all(f'.typing("{page}"' in text for page in pages)
    elif name in {"ray", "kubernetes"}:
        assert all(f'session("{name}", "{page}")' in text for page in pages)
    else:
        assert f'session("{name}")' in text


def test_the_page_of_raytide_plan_is_run_by_its_test():
    ours = {typed for typed, test in documented.run_by().items() if test == "tests/unit/cli/test_plan_page.py"}
    assert ours == set(SHOWN)


def test_the_page_of_five_minutes_is_run_by_its_test():
    ours = [each.text for each in ALL if each.page == "docs/quickstart.md"]
    assert ours == [text for text, _ in EXAMPLES]


def test_the_end_to_end_suite_types_the_commands_of_the_readme(monkeypatch):
    ours = [typed for typed, test in documented.run_by().items() if test == "e2e/test_1_install.py"]
    spec = importlib.util.spec_from_file_location("installation_of_e2e", ROOT / "e2e/installation.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look there
    spec.loader.exec_module(module)
    installation = module.Installation("raytide", "default", "registry.example.com/raytide:0.1.0")
    repository = {str(installation.chart): "helm/raytide", str(installation.sample): "samples/raycluster.yaml"}
    typed = [[repository.get(word, word) for word in words] for words in installation.documented_commands]
    for each in ours:
        assert shlex.split(each.replace("\\\n", " ")) in typed
    suite = (ROOT / "e2e/test_1_install.py").read_text()
    assert "run(*install," in suite
    assert "run(*apply," in suite


@pytest.mark.parametrize(
    ("target", "level"),
    [
        pytest.param("demo", ".ci/run: make demo", id="a level of a lane"),
        pytest.param("test", ".ci/run: make test", id="a level in front of the lanes"),
        pytest.param("mutate", ".ci/run: make mutate", id="a level at the lowest priority"),
        pytest.param(
            "nightly", ".github/workflows/nightly.yaml: make nightly", id="the target of the nightly workflow"
        ),
        pytest.param("fuzz", ".github/workflows/nightly.yaml: make nightly", id="what that target calls"),
        pytest.param("properties", ".ci/run: make properties", id="run for a commit and at night"),
        pytest.param("presubmit", ".ci/run", id="the run itself"),
        pytest.param("test-kube", ".ci/run: make kube-suite, .ci/run: make acceptance", id="all of its parts"),
        pytest.param("e2e", None, id="run by neither"),
        pytest.param("release", None, id="only the workflow of a release"),
    ],
)
def test_what_runs_a_target_of_make(target, level):
    assert documented.targets_of_ci().get(target) == level


def test_the_pages_for_contributors_are_read():
    assert {"CONTRIBUTING.md", "docs/contributing/release.md"} <= {each.page for each in ALL}


# --- that commands, options, files, targets and values exist -----------------------------------------------------------


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
