"""Write the man pages of `raytide` and its subcommands, or check that they are current.

One page per command that `--help` lists, from the same values, in operator/man and for the sandbox, a distribution of its own, in
sandbox/man. Both wheels install them into `share/man/man1`. They are committed and not written while a wheel is built, because a
build has no commands: they need all dependencies at run time. The pages have neither date nor version, so that they only change
with the commands.

Not click-man (0.6.0): it finds no command of a group that imports its commands when they are called, does not escape text, dates
each page, and has neither exit status nor environment. The exit status is read from the sentence `Exit code 0: …, 1: ….` at the
end of a paragraph of the help. `python tools/generators/man_pages.py` writes, `--check` changes nothing.
"""

import inspect
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from raytide.cli import COMMANDS
from raytide.cli import main as command
from site_pages import root_context, walk

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "operator" / "man"
SANDBOX_FOLDER: Final = ROOT / "sandbox" / "man"
NOTICE: Final = r".\" Written by tools/generators/man_pages.py (make man) from the commands."
ESCAPES: Final = str.maketrans({"\\": r"\e", "-": r"\-", "~": r"\(ti", "^": r"\(ha", "`": r"\(ga"})
"""Of characters that are part of a request or that a terminal shows as another one, which breaks copied commands."""
_CODE: Final = re.compile(r"`([^`]+)`")
_EXIT_CODES: Final = re.compile(r"\s*\bExit code (\d+: .+)\.$")
_VARIABLE: Final = re.compile(r"\$([A-Z][A-Z0-9_]+)")


class UndescribedError(Exception):
    """A command has no text that its page needs."""


def escape(text: str) -> str:
    """The text as one line of roff, which shows it unchanged."""
    return _line(_escaped(" ".join(text.split())))


def prose(text: str) -> str:
    """The same for a text with code between backticks, which becomes bold."""
    parts = _CODE.split(" ".join(text.split()))
    return _line("".join(_bold(part) if number % 2 else _escaped(part) for number, part in enumerate(parts)))


def _escaped(text: str) -> str:
    return "".join(sign if sign.isascii() else rf"\[u{ord(sign):04X}]" for sign in text.translate(ESCAPES))


def _line(text: str) -> str:
    return rf"\&{text}" if text.startswith((".", "'")) else text


def _bold(text: str) -> str:
    """Words to type: apostrophes do not become typographic ones, and a long list may continue on the next line."""
    typed = re.sub(r",(?=\S)", r",\\:", _escaped(text).replace("'", r"\(aq"))
    return rf"\fB{typed}\fP"


def _reference(path: str) -> str:
    return f"{_bold(path.replace(' ', '-'))}(1)"


def page(context: click.Context, aliases: Iterable[str], documentation: str) -> str:
    """The man page of one command; `aliases` are other names that it is installed under."""
    names = [context.command_path.replace(" ", "-"), *aliases]
    paragraphs, codes = described(context)
    usage = " ".join(rf"\fI{escape(piece)}\fP" for piece in context.command.collect_usage_pieces(context))
    sections = {
        "NAME": [rf"{', '.join(map(escape, names))} \- {escape(summary(context))}"],
        "SYNOPSIS": [f"{_bold(context.command_path)} {usage}"],
        "DESCRIPTION": [line for text in paragraphs for line in (".PP", prose(text))][1:],
        "OPTIONS": _list(_options(context)),
        "COMMANDS": _list((_reference(below.command_path), escape(summary(below))) for below in _children(context)),
        "EXIT STATUS": _list((_bold(code), prose(f"{meaning[0].upper()}{meaning[1:]}.")) for code, meaning in codes),
        "ENVIRONMENT": _list(_variables(context)),
        "SEE ALSO": [", ".join(_related(context)), ".PP", f"Documentation: {escape(documentation)}"],
    }
    title_line = f'.TH "{escape(names[0].upper())}" "1" "" "Raytide" "Raytide Manual"'
    lines = [NOTICE, title_line, ".nh", ".ad l"]  # no hyphens and no gaps in words to type
    for title, body in sections.items():
        lines += [f".SH {title}", *body] if body else []
    return "\n".join(lines) + "\n"


def _list(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [line for term, text in rows for line in (".TP", term, text)]


def summary(context: click.Context) -> str:
    """What the command does, in one line without a period."""
    is_direct = context.parent is not None and context.parent.parent is None
    text = COMMANDS[context.info_name or ""] if is_direct else context.command.short_help
    if not text:
        raise UndescribedError(f"{context.command_path} has no short_help")
    return text


def described(context: click.Context) -> tuple[list[str], list[tuple[str, str]]]:
    """Paragraphs of the help, and the exit codes that it documents with their meaning."""
    if not context.command.help:
        raise UndescribedError(f"{context.command_path} has no help; is its distribution installed?")
    paragraphs, codes = [], []
    for paragraph in inspect.cleandoc(context.command.help).split("\n\n"):
        text = " ".join(paragraph.split())
        if found := _EXIT_CODES.search(text):
            codes += [
                (code, meaning)
                for each in re.split(r", (?=\d+: )", found[1])
                for code, _, meaning in [each.partition(": ")]
            ]
            text = text[: found.start()]
        paragraphs += [text] if text else []
    return paragraphs, codes


def _options(context: click.Context) -> Iterator[tuple[str, str]]:
    for option in context.command.get_params(context):
        if isinstance(option, click.Option) and (record := option.get_help_record(context)):
            yield " ".join(map(_option_word, record[0].split())), prose(record[1])


def _option_word(word: str) -> str:
    if word.startswith("-"):
        name = word.removesuffix(",")
        return f"{_bold(name)}{word[len(name) :]}"
    return word if word == "/" else rf"\fI{escape(word)}\fP"


def _variables(context: click.Context) -> Iterator[tuple[str, str]]:
    """Variables that an option is read from, and those that its help names as its default."""
    for option in context.command.get_params(context):
        if isinstance(option, click.Option) and not option.hidden:
            own = [option.envvar] if isinstance(option.envvar, str) else option.envvar or []
            for name in dict.fromkeys([*own, *_VARIABLE.findall(option.help or "")]):
                yield _bold(name), f"Used if {_bold(max(option.opts, key=len))} is not given."


def _children(context: click.Context) -> list[click.Context]:
    return [below for below in walk(context) if below.parent is context]


def _related(context: click.Context) -> Iterator[str]:
    above = context.parent
    while above is not None:
        yield _reference(above.command_path)
        above = above.parent
    yield from (_reference(below.command_path) for below in _children(context))
    yield _bold("kubectl") + "(1)"


def build_all() -> dict[Path, str]:
    """Every page, as it should be."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    aliases = sorted(set(project["scripts"]) - {"raytide"})
    built = {FOLDER / f"{alias}.1": ".so man1/raytide.1\n" for alias in aliases}
    for context in walk(root_context(command)):
        words = context.command_path.split()
        folder = SANDBOX_FOLDER if words[1:2] == ["sandbox"] else FOLDER
        others = () if context.parent else aliases
        built[folder / f"{'-'.join(words)}.1"] = page(context, others, project["urls"]["Documentation"])
    return built


def main() -> None:
    """Write, or with `--check` compare."""
    try:
        built = build_all()
    except UndescribedError as error:
        sys.exit(str(error))
    left = {path for folder in (FOLDER, SANDBOX_FOLDER) for path in folder.glob("*")} - set(built)
    if "--check" in sys.argv[1:]:
        old = [path for path, text in built.items() if not path.exists() or path.read_text() != text]
        if old or left:
            sys.exit("\n".join(f"{path} is not current, run `make man`" for path in [*old, *sorted(left)]))
        return
    for path in left:
        path.unlink()
    for path, text in built.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
