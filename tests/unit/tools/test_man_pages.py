"""The man pages: every command with every option, valid roff, and nothing that a terminal shows as something else."""

import re
import shutil
import subprocess

import click
import pytest

import man_pages
import raytide.cli
from support.deadlines import PATIENCE

PAGES = {path.stem: text for path, text in man_pages.build_all().items()}
ALIAS = "kubectl-raytide"
REQUEST = re.compile(r'\.(?:\\" .*|TH "[^"]+" "1" "" "Raytide" "Raytide Manual"|SH [A-Z ]+|PP|TP|nh|ad l)')
ESCAPE = re.compile(r"\\(?:[e&:-]|f[BIP]|\((?:aq|ti|ha|ga)|\[u[0-9A-F]{4,6}\])")
BACKSLASH = chr(92)


def listed_commands(command=raytide.cli.main, name="raytide"):
    yield name, command
    if isinstance(command, click.Group):
        for below in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), below)
            if not found.hidden:
                yield from listed_commands(found, f"{name}-{below}")


COMMANDS = dict(listed_commands())


def sections(page: str) -> dict[str, str]:
    titled = re.split(r"(?m)^\.SH (.*)\n", page)[1:]
    return dict(zip(titled[::2], titled[1::2], strict=True))


def plain(roff: str) -> str:
    """What a terminal shows of it, unwrapped and without fonts."""
    shown = re.sub(r"(?m)^\.(TP|PP)\n", "", re.sub(r"\\f[BIP]|\\[&:]", "", roff))
    for escape, sign in (("-", "-"), ("(aq", "'"), ("(ti", "~"), ("(ha", "^"), ("(ga", "`"), ("e", BACKSLASH)):
        shown = shown.replace(BACKSLASH + escape, sign)
    return shown


def test_every_listed_command_has_a_page_and_the_plugin_is_another_name_of_the_first():
    assert set(PAGES) == {*COMMANDS, ALIAS}
    assert len(COMMANDS) > 15
    assert "raytide-sandbox-serve" not in PAGES  # hidden
    assert PAGES[ALIAS] == ".so man1/raytide.1\n"
    assert plain(sections(PAGES["raytide"])["NAME"]).startswith("raytide, kubectl-raytide - ")


def test_the_committed_pages_are_those_of_the_commands():
    built = man_pages.build_all()
    assert {path: path.read_text() for path in built} == built
    assert {path for folder in (man_pages.FOLDER, man_pages.SANDBOX_FOLDER) for path in folder.iterdir()} == set(built)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_has_its_sections_and_every_option(name):
    found = sections(PAGES[name])
    order = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "SEE ALSO"]
    assert list(found) == [title for title in order if title in found]
    assert {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"} <= set(found)
    assert ("COMMANDS" in found) == isinstance(COMMANDS[name], click.Group)
    terms = " ".join(plain(term) for term in re.findall(r"(?m)^\.TP\n(.*)", found["OPTIONS"]))
    options = [each for each in COMMANDS[name].params if isinstance(each, click.Option) and not each.hidden]
    spelled = {spelling for option in options for spelling in (*option.opts, *option.secondary_opts)}
    assert spelled | {"-h", "--help"} <= set(re.split(r"[ ,]+", terms)), name
    variables = {option.envvar for option in options if option.envvar}
    assert variables <= set(plain(found.get("ENVIRONMENT", "")).split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_name_line_is_a_phrase(name):
    (line,) = plain(sections(PAGES[name])["NAME"]).splitlines()
    phrase = line.partition(" - ")[2]
    assert 10 < len(phrase) < 80
    assert not phrase.endswith((".", "…"))
    assert "..." not in phrase


@pytest.mark.parametrize("name", COMMANDS)
def test_each_page_is_valid_roff(name):
    for line in PAGES[name].splitlines():
        assert line
        assert line.isascii()
        if line.startswith((".", "'")):
            assert REQUEST.fullmatch(line), line
        text = line.removeprefix(r".\"")
        assert BACKSLASH not in ESCAPE.sub("", text), line
        assert line.startswith(".") or "-" not in text.replace(r"\-", ""), line


@pytest.mark.parametrize(
    ("text", "roff"),
    [
        (".so /etc/passwd", r"\&.so /etc/passwd"),
        ("'br", r"\&'br"),
        ("a\n.b", "a .b"),
        (r"C:\new", r"C:\enew"),
        ("--dry-run", r"\-\-dry\-run"),
        ("~/.kube ^a", r"\(ti/.kube \(haa"),
        ("a … b", r"a \[u2026] b"),
        ("the pod's `echo 'a' \\n`.", r"the pod's \fBecho \(aqa\(aq \en\fP."),
        ("`get a,b, c` a,b", r"\fBget a,\:b, c\fP a,b"),
        ("`.hidden` file", r"\fB.hidden\fP file"),
    ],
)
def test_text_is_escaped(text, roff):
    assert man_pages.prose(text) == roff


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("raytide-why", "01234"),
        ("raytide-plan", "012"),
        ("raytide-scale", "012"),
        ("raytide-diagnose", "012"),
        ("raytide-crds-apply", "012"),
        ("raytide-sandbox-up", "012"),
        ("raytide-sandbox-status", "012"),
    ],
)
def test_documented_exit_codes_are_a_section_of_their_own(name, codes):
    found = sections(PAGES[name])
    assert re.findall(r"\.TP\n\\fB(\d+)\\fP\n[A-Z].+\.\n", found["EXIT STATUS"]) == list(codes)
    assert "Exit code" not in found["DESCRIPTION"]


def test_a_command_without_a_text_is_an_error():
    context = click.Context(click.Command("new"), info_name="new")
    with pytest.raises(man_pages.UndescribedError, match="new has no short_help"):
        man_pages.summary(context)
    with pytest.raises(man_pages.UndescribedError, match="new has no help"):
        man_pages.described(context)


RENDERERS = (("groff", "-man", "-Tascii", "-wall"), ("mandoc", "-Tascii"), ("man", "--warnings", "-l"))
RENDERER = next((command for command in RENDERERS if shutil.which(command[0])), None)


@pytest.mark.skipif(RENDERER is None, reason="no groff, mandoc or man on PATH")
@pytest.mark.parametrize("name", COMMANDS)
def test_each_page_is_rendered_without_a_warning(name, tmp_path):
    file = tmp_path / f"{name}.1"
    file.write_text(PAGES[name])
    done = subprocess.run([*RENDERER, file], capture_output=True, text=True, check=True, timeout=30 * PATIENCE)
    assert done.stderr == ""
    shown = re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)  # bold: colors, or each sign twice
    assert [title for title in sections(PAGES[name]) if f"\n{title}\n" not in shown] == []
    assert "-h, --help" in shown
