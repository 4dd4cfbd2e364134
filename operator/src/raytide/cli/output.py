"""Results of commands as JSON or YAML, for programs: one option and one encoding for all commands.

ASCII only, so that nothing which another user wrote into an object reaches a terminal as a control
sequence or as a mark that reorders text.
"""

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


OUTPUT_HELP: Final = "Output format."


def output_option(default: str = "text") -> Callable[[_Function], _Function]:
    """The option `-o`: the default, which is for people and has kubectl's name `wide` too, `yaml` or `json`."""
    formats = click.Choice([default, "wide", "yaml", "json"])

    def narrowed(_ctx: click.Context, _option: click.Parameter, output: str) -> str:
        return default if output == "wide" else output

    return click.option(
        "-o", "--output", type=formats, default=default, show_default=True, callback=narrowed, help=OUTPUT_HELP
    )


def encoded(output: str, value: Any) -> str:
    """The value as `json` or `yaml`, without a line feed at its end."""
    if output == "json":
        return json.dumps(value, indent=2)
    import yaml  # noqa: PLC0415 - for this output only

    return yaml.safe_dump(value, sort_keys=False, width=10_000).rstrip()
