"""Metadata of both distributions: what a package index and `pip show` display, and the description that it renders."""

import email
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import readme_renderer.markdown
import trove_classifiers

import raytide
from raytide.api.constants import VERSION
from support.distributions import ROOT, build

SOURCES = {"raytide": ROOT, "raytide-sandbox": ROOT / "sandbox"}
PAGES = f"https://github.com/raytide/raytide/blob/v{VERSION}/"
FILES = f"https://raw.githubusercontent.com/raytide/raytide/v{VERSION}/"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    return {name: build("build_wheel", source, folder / name) for name, source in SOURCES.items()}


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


@pytest.fixture(params=SOURCES)
def metadata(request, wheels):
    return metadata_of(wheels[request.param])


def test_the_version_is_that_of_the_constants(metadata):
    assert metadata["Version"] == VERSION == raytide.__version__


def test_authors_maintainers_licence_and_python_are_named(metadata):
    assert metadata["Author"] == metadata["Maintainer"] == "The Raytide authors"
    assert (metadata["License-Expression"], metadata.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    assert metadata["Requires-Python"] == ">=3.11"


def test_keywords_and_a_summary_are_there(metadata):
    assert len(metadata["Keywords"].split(",")) >= 3
    assert metadata["Summary"].endswith(".")


def test_every_classifier_is_one_that_the_index_accepts(metadata):
    classifiers = metadata.get_all("Classifier")
    known = trove_classifiers.classifiers
    assert [each for each in classifiers if each not in known and not each.startswith("Private :: ")] == []
    assert {"Typing :: Typed", "Operating System :: POSIX :: Linux"} <= set(classifiers)


def test_the_package_index_rejects_the_sandbox_which_is_not_released(wheels):
    assert "Private :: Do Not Upload" in metadata_of(wheels["raytide-sandbox"]).get_all("Classifier")
    assert not [c for c in metadata_of(wheels["raytide"]).get_all("Classifier") if c.startswith("Private")]


def test_every_link_is_of_the_repository(metadata):
    links = dict(link.split(", ") for link in metadata.get_all("Project-URL"))
    assert {"Homepage", "Documentation", "Source", "Issues"} <= set(links)
    assert {link.startswith("https://github.com/raytide/raytide") for link in links.values()} == {True}


def test_a_link_to_a_page_leads_to_a_file_of_this_repository(metadata):
    pages = [
        re.sub(r"^.*?/(blob|tree)/main/", "", link) for link in metadata.get_all("Project-URL") if "/main/" in link
    ]
    assert [page for page in pages if not (ROOT / page).exists()] == []


# --- what is in the archives -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "package"), [("raytide", "raytide"), ("raytide-sandbox", "raytide_sandbox")])
def test_the_wheel_says_that_it_has_types(wheels, name, package):
    with zipfile.ZipFile(wheels[name]) as wheel:
        assert f"{package}/py.typed" in wheel.namelist()


def test_each_folder_with_modules_is_a_package():
    """A folder without `__init__.py` would be outside of the import rules."""
    package = ROOT / "operator" / "src" / "raytide"
    assert [str(path) for path in package.rglob("*.py") if not (path.parent / "__init__.py").exists()] == []


def test_the_sdist_has_the_licence_the_readme_and_the_changelog(tmp_path):
    with tarfile.open(build("build_sdist", ROOT, tmp_path / "sdist")) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "PKG-INFO"} <= names


# --- the description -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def description(wheels):
    metadata = metadata_of(wheels["raytide"])
    assert metadata["Description-Content-Type"] == "text/markdown"
    return metadata.get_payload()


def test_the_description_renders(description):
    html = readme_renderer.markdown.render(description)
    assert html is not None
    assert re.search(r"<h1[^>]*>Raytide<", html)
    assert html.count("<table>") == len(re.findall(r"(?m)^\|---", description))


def test_each_link_of_the_description_is_absolute(description):
    html = readme_renderer.markdown.render(description)
    links = re.findall(r'(?:href|src)="([^"]+)"', html)  # with # the anchors of headings
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_each_link_into_the_repository_leads_to_a_file_of_it(description):
    places = re.findall(rf"(?:{re.escape(PAGES)}|{re.escape(FILES)})([^)#\"\s]+)", description)
    assert "docs/user-guide.md" in places
    assert [place for place in places if not (ROOT / place).exists()] == []


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SUBSTITUTIONS = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]


def substituted(text: str) -> str:
    """What the build makes of the text; it also replaces `$HFPR_VERSION`."""
    for substitution in SUBSTITUTIONS:
        text = re.sub(substitution["pattern"], substitution["replacement"], text)
    return text.replace("$HFPR_VERSION", VERSION)


@pytest.mark.parametrize(
    ("written", "published"),
    [
        pytest.param("[a](docs/plan.md)", f"[a]({PAGES}docs/plan.md)", id="a page"),
        pytest.param("[a](docs/plan.md#b)", f"[a]({PAGES}docs/plan.md#b)", id="a section of a page"),
        pytest.param("[a](#what-works-today)", "[a](#what-works-today)", id="a section of the README"),
        pytest.param("[a](https://www.ray.io)", "[a](https://www.ray.io)", id="another site"),
        pytest.param("![a](docs/a.svg)", f"![a]({FILES}docs/a.svg)", id="a picture"),
        pytest.param("[![a](docs/a.svg)](docs/a.md)", f"[![a]({FILES}docs/a.svg)]({PAGES}docs/a.md)", id="both"),
        pytest.param('<img src="docs/a.svg">', f'<img src="{FILES}docs/a.svg">', id="a picture in HTML"),
        pytest.param('<source srcset="docs/a.svg">', f'<source srcset="{FILES}docs/a.svg">', id="one of two pictures"),
    ],
)
def test_a_link_is_rewritten(written, published):
    assert substituted(written) == published
