"""Local stand-ins for images."""

import os
import sys
from pathlib import Path

import pytest

import raytide.cli
from raytide_sandbox.container_runtime import images
from raytide_sandbox.container_runtime.interface import Image

HERE = Path("/s/bin")


def find(name: str, *, has_ray: bool = True) -> Image | None:
    return images.find(name, stand_ins_dir=HERE, has_ray=has_ray)


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        pytest.param("rayproject/ray:2.46.0", ("bash",), id="Ray"),
        pytest.param("rayproject/ray-ml:2.46.0-gpu", ("bash",), id="Ray with libraries"),
        pytest.param("docker.io/rayproject/ray@sha256:00", ("bash",), id="a registry in front and a digest behind"),
        pytest.param("localhost:5000/rayproject/ray", ("bash",), id="a registry with a port"),
        pytest.param("busybox", ("sh",), id="busybox"),
        pytest.param("docker.io/library/debian:12-slim", ("sh",), id="an official image by its long name"),
        pytest.param("python:3.11", ("python3",), id="python"),
        pytest.param("raytide:dev", ("raytide", "operator"), id="Raytide's"),
        pytest.param("ghcr.io/someone/raytide-operator:1", ("raytide", "operator"), id="Raytide's from a registry"),
    ],
)
def test_known_images(name: str, argv: tuple[str, ...]) -> None:
    image = find(name)
    assert image is not None
    assert image.entrypoint + image.command == argv
    assert image.env["PATH"].split(":")[0] == str(Path(sys.prefix) / "bin")
    assert image.env["PATH"].split(":")[-1] == str(HERE)


@pytest.mark.parametrize("name", ["nginx", "quay.io/other/thing:1", "someone/busybox", "rayproject/other", "ray:1", ""])
def test_an_image_without_a_stand_in_is_not_found(name: str) -> None:
    assert find(name) is None


def test_without_ray_there_is_no_ray_image() -> None:
    assert find("rayproject/ray:2.46.0", has_ray=False) is None


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """As a virtual environment: its interpreter is that of another installation."""
    base = tmp_path / "python" / "bin" / "python3.11"
    base.parent.mkdir(parents=True)
    base.touch()
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(base)
    return folder


@pytest.mark.parametrize(
    "name", ["paddlepaddle/paddle", "paddlepaddle/paddle:2.6.2", "r.io/paddlepaddle/paddle@sha256:0"]
)
def test_an_environment_is_used_for_the_configured_image(name: str, environment: Path) -> None:
    given = images.parse_given([f"paddlepaddle/paddle:any={environment}"])
    image = images.find(name, stand_ins_dir=HERE, given=given)
    assert image is not None
    assert image.env["PATH"].split(":")[0] == str(environment / "bin")
    assert str(Path(sys.prefix) / "bin") not in image.env["PATH"].split(":")
    assert image.dirs == (str(environment), str(environment.parent / "python"))


def test_what_the_user_gives_comes_before_what_is_known(environment: Path) -> None:
    given = images.parse_given([f"python={environment}"])
    image = images.find("python:3.11", stand_ins_dir=HERE, given=given)
    assert image is not None
    assert image.image_id == f"process://{environment}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("paddle", "'paddle' is not NAME=FOLDER", id="no folder"),
        pytest.param("=/usr", "'=/usr' is not NAME=FOLDER", id="no name"),
        pytest.param("paddle=/not/there", "there is no folder /not/there/bin with commands", id="a folder that is not"),
    ],
)
def test_an_invalid_image_option_is_reported(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        images.parse_given([text])


def test_the_environment_of_the_running_python_is_shown_and_nothing_twice() -> None:
    dirs = images.environment_dirs()

    def is_shown(path: str) -> bool:
        return any(path == one or path.startswith(one + "/") for one in dirs)

    packages = (str(Path(images.__file__).parents[2]), str(Path(raytide.cli.__file__).parents[2]))
    linked = os.path.realpath(Path(raytide.cli.__file__).parents[1] / "crds")
    for path in (sys.prefix, sys.base_prefix, os.path.realpath(sys.executable), *packages, linked):
        assert is_shown(path), path
    assert not [one for one in dirs if any(one.startswith(other + "/") for other in dirs)]


def test_a_stand_in_for_wget_is_written_only_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images.shutil, "which", lambda *_, **__: None)
    images.write_stand_ins(tmp_path)
    assert os.access(tmp_path / "wget", os.X_OK)
    monkeypatch.setattr(images.shutil, "which", lambda *_, **__: "/usr/bin/wget")
    images.write_stand_ins(tmp_path)
    assert not (tmp_path / "wget").exists()
