"""SBOMs and the other files of a release, without the network."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import release
import sbom
from raytide.api.constants import VERSION
from release import ReleaseError
from support.documented_commands import session
from support.image_packages import locked_packages

ROOT = Path(__file__).parents[3]
CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 1.2.0 - 2026-01-01\n"
SCRIPT = """#!/bin/sh
printf '%s\\n' "$@" >"$(dirname "$0")/asked"
[ -z "$FAKE_ERROR" ] || { echo "$FAKE_ERROR" >&2; exit 1; }
cat "$(dirname "$0")/answer"
"""


@pytest.fixture
def packages(tmp_path):
    """Commands of a release that repeat an answer."""
    for name in ("cyclonedx-py", "python"):
        (tmp_path / name).write_text(SCRIPT)
        (tmp_path / name).chmod(0o755)
    component = {"bom-ref": "requirements-L1", "name": "aiohttp", "version": "3.9.1", "type": "library"}
    root = {"bom-ref": "root-component", "name": "raytide", "type": "application"}
    answer = {"metadata": {"component": root}, "components": [component], "dependencies": [{"ref": "requirements-L1"}]}
    (tmp_path / "answer").write_text(json.dumps(answer))
    return tmp_path


@pytest.mark.rule("SE:C16")
@pytest.mark.parametrize("name", sbom.LOCKS)
def test_an_sbom_names_the_version_and_needs_all_components(packages, name):
    built = sbom.build(packages, name)
    root = built["metadata"]["component"]
    assert (root["name"], root["version"]) == (name, VERSION)
    assert root.get("purl") == (f"pkg:pypi/raytide@{VERSION}" if name == "raytide" else None)
    needs = {each["ref"]: each.get("dependsOn", []) for each in built["dependencies"]}
    assert needs == {"root-component": ["requirements-L1"], "requirements-L1": []}
    asked = (packages / "asked").read_text().splitlines()
    assert asked[0] == "requirements"
    assert "--output-reproducible" in asked
    assert asked[-1] == str(ROOT / "requirements" / sbom.LOCKS[name])


@pytest.mark.rule("SE:C16")
def test_both_sboms_are_written_in_a_new_folder(packages, tmp_path):
    files = sbom.write(tmp_path / "dist", packages)
    assert [file.name for file in files] == [f"raytide-{VERSION}.cdx.json", f"raytide-image-{VERSION}.cdx.json"]
    assert all(json.loads(file.read_text())["components"] for file in files)


@pytest.mark.parametrize(("step", "words"), [(sbom.build, "could not read"), (sbom.validate, "not a valid SBOM: it")])
def test_an_error_is_reported_with_its_text(packages, monkeypatch, step, words):
    monkeypatch.setenv("FAKE_ERROR", "it broke")
    with pytest.raises(sbom.SbomError, match=words):
        step(packages, "raytide")


def test_an_sbom_is_of_what_the_image_installs():
    assert "kubernetes" not in locked_packages(ROOT / "requirements" / sbom.LOCKS["raytide-image"])


# --- the release ------------------------------------------------------------------------------------------------------
def test_a_tag_that_is_the_version_and_has_a_section_is_right():
    release.check_tag("v1.2.0", "1.2.0", CHANGELOG)


@pytest.mark.parametrize(
    ("tag", "version", "words"),
    [
        ("v1.2.1", "1.2.0", "the tag v1.2.1 is not v1.2.0"),
        ("1.2.0", "1.2.0", "the tag 1.2.0 is not v1.2.0"),
        ("v1.2", "1.2", "has no section `## 1.2`"),
        ("v1.3.0", "1.3.0", "has no section `## 1.3.0`: rename `## Unreleased`"),
    ],
    ids=["another version", "without its v", "the section of another version", "no section"],
)
def test_a_wrong_tag_is_an_error(tag, version, words):
    with pytest.raises(ReleaseError, match=re.escape(words)):
        release.check_tag(tag, version, CHANGELOG)


def test_a_step_that_fails_is_reported_with_its_output():
    with pytest.raises(ReleaseError, match=r"sh -c failed: it broke"):
        release.run("sh", "-c", "echo it broke >&2; exit 3")


def test_the_hashes_verify_and_a_changed_file_does_not(packages, tmp_path, monkeypatch):
    target = tmp_path / "dist"
    built = {"uv": (f"raytide-{VERSION}.tar.gz",), "helm": (f"raytide-{VERSION}.tgz",), "twine": ()}

    def run(program, *_):
        for name in built[Path(program).name]:
            (target / name).write_text(name)

    monkeypatch.setattr(release, "run", run)
    monkeypatch.setattr(release.kube_tools, "find_tool", Path)
    monkeypatch.setattr(release.security_tools, "provide_packages", lambda _: packages)
    files = [file.name for file in release.build(target)]
    assert f"raytide-chart-{VERSION}.tgz" in files
    assert len((target / release.SUMS).read_text().splitlines()) == len(files) - 1 == 4
    (check,) = (shlex.split(command.typed) for command in session("release"))
    (target / files[1]).unlink()  # users download what they need
    assert subprocess.run(check, cwd=target, capture_output=True, check=False).returncode == 0
    (target / files[0]).write_text("changed")
    assert subprocess.run(check, cwd=target, capture_output=True, check=False).returncode == 1
