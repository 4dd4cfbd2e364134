"""docs/ui.md has every flag and every limit of `raytide ui`."""

from pathlib import Path

import click
import pytest

from raytide.cli.plan import from_files
from raytide.cli.ui import PORT, access, app, command, feed, serve
from raytide.explain import history, transfers

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "ui.md").read_text()


def test_every_flag_is_on_the_page():
    flags = {flag for param in command.params if isinstance(param, click.Option) for flag in param.opts}
    assert {flag for flag in flags if f"`{flag}" not in PAGE} == set()


@pytest.mark.parametrize(
    "words",
    [
        f"default: {PORT}",
        f"{app.MAX_YAML // 1024} KiB",
        f"{from_files.MAX_DEPTH} levels",
        f"{feed.MAX_READERS} pages",
        f"at most {history.MAX_BYTES // 1024**2} MiB",
        f"{history.MAX_WORKLOADS:,}",
        f"roles beyond {history.MAX_GROUPS:,}",
        f"{serve.CALLER_VIEWS} views",
        f"{serve.CALLER_PAGES} open pages",
        f"holds for {access.KEPT_S:.0f} seconds",
        f"at most {transfers.MAX_TRANSFERS} on a lane",
    ],
)
def test_every_limit_is_on_the_page(words):
    assert words in PAGE.replace("\n", " ")


@pytest.mark.parametrize("name", ["ui-light.png", "ui-dark.png", "ui-why-dark.png", "ui-what-if-light.png"])
def test_the_pictures_are_small(name):
    assert (DOCS / "figures" / name).stat().st_size <= 300_000
