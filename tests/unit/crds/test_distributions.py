"""The CRDs are in every distribution of Raytide, although git has them once; the sandbox is not in its wheel."""

import email
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from raytide.api.constants import VERSION
from raytide_sandbox.controlplane.embedded import shipped_crds
from support.deadlines import PATIENCE
from support.distributions import ROOT, build, unpack

pytestmark = pytest.mark.slow

CRDS = {path.name: path.read_bytes() for path in (ROOT / "crds").iterdir()}
READ_CRDS = """
import importlib.resources, json, site, sys
site.addsitedir(sys.argv[1])
folder = importlib.resources.files("raytide") / "crds"
print(json.dumps({file.name: file.read_text() for file in folder.iterdir()}))
"""


def crds_in_wheel(path):
    with zipfile.ZipFile(path) as wheel:
        return {Path(name).name: wheel.read(name) for name in wheel.namelist() if name.startswith("raytide/crds/")}


def test_the_crds_are_both_kinds():
    assert set(CRDS) == {"ray.io_rayclusters.yaml", "paddlepaddle.org_trainingjobs.yaml"}


def test_the_wheel_has_the_crds(tmp_path):
    assert crds_in_wheel(build("build_wheel", ROOT, tmp_path / "wheel")) == CRDS


@pytest.mark.rule("D22")
@pytest.mark.parametrize(
    ("source", "package", "other"),
    [(ROOT, "raytide", "raytide-sandbox"), (ROOT / "sandbox", "raytide_sandbox", "raytide")],
    ids=["operator", "sandbox"],
)
def test_each_wheel_has_its_own_package_and_does_not_require_the_other(tmp_path, source, package, other):
    with zipfile.ZipFile(build("build_wheel", source, tmp_path / "wheel")) as wheel:
        folders = {name.split("/")[0] for name in wheel.namelist()}
        assert folders == {package, f"{package}-{VERSION}.dist-info"}
        assert f"{package}-{VERSION}.dist-info/licenses/LICENSE" in wheel.namelist()
        metadata = email.message_from_bytes(wheel.read(f"{package}-{VERSION}.dist-info/METADATA"))
    required = {re.split(r"[^A-Za-z0-9_.-]", requirement)[0] for requirement in metadata.get_all("Requires-Dist")}
    assert other not in required
    assert "click" in required


@pytest.mark.parametrize("folder", ["crds", "operator/src/raytide/crds", "helm/raytide/crds"])
def test_the_sdist_has_files_in_place_of_the_links(tmp_path, folder):
    with tarfile.open(build("build_sdist", ROOT, tmp_path / "sdist")) as sdist:
        top = sdist.getnames()[0].split("/")[0]
        found = {name: sdist.extractfile(f"{top}/{folder}/{name}").read() for name in CRDS}
        assert all(sdist.getmember(f"{top}/{folder}/{name}").isreg() for name in CRDS)
    assert found == CRDS


def test_the_wheel_that_is_built_from_the_sdist_has_the_crds(tmp_path):
    unpack(build("build_sdist", ROOT, tmp_path / "sdist"), tmp_path)
    (source,) = tmp_path.glob("raytide-*")
    assert crds_in_wheel(build("build_wheel", source, tmp_path / "wheel")) == CRDS


def test_an_editable_install_has_the_crds_of_the_clone(tmp_path):
    with zipfile.ZipFile(build("build_editable", ROOT, tmp_path / "wheel")) as wheel:
        wheel.extractall(tmp_path / "site")
    command = [sys.executable, "-I", "-S", "-c", READ_CRDS, str(tmp_path / "site")]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60 * PATIENCE)
    assert {name: text.encode() for name, text in json.loads(answer.stdout).items()} == CRDS


def test_the_sandbox_installs_the_crds():
    assert [name for name, _ in shipped_crds()] == sorted(CRDS)
