"""Links of the documentation site that lead out of the site."""

import pytest

import docs_site

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
    assert docs_site.relink(text, "docs/guide.md", ON_SITE.__contains__, SOURCE) == (expected or text)
