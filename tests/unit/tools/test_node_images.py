"""Images of a node: what of the machine's installation of Ray becomes which path of the image."""

import json
import tarfile

import pytest

import node_images


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "raytide" / "node" / "images"


def test_the_pause_image_is_one_program_of_an_unprivileged_user(tmp_path):
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    with tarfile.open(node_images.pause(program)) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(manifest["Config"]))["config"]
        with tarfile.open(fileobj=archive.extractfile(manifest["Layers"][0])) as layer:
            assert [(entry.name, entry.mode) for entry in layer] == [("pause", 0o755)]
    assert manifest["RepoTags"] == ["localhost/raytide-pause:1"]
    assert config == {"Entrypoint": ["/pause"], "User": "65535:65535"}


def test_an_image_is_written_once(tmp_path):
    program = tmp_path / "pause"
    program.write_bytes(b"one")
    first = node_images.pause(program)
    written = first.stat().st_mtime_ns
    assert node_images.pause(program).stat().st_mtime_ns == written
    program.write_bytes(b"two")
    assert node_images.pause(program) != first


def test_an_image_that_cannot_be_written_leaves_nothing(cache, monkeypatch, tmp_path):
    (tmp_path / "pause").write_bytes(b"")

    def fill_the_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node_images, "_write_pause", fill_the_disk)
    with pytest.raises(node_images.ImageError, match=r"cannot be built: .*No space left on device"):
        node_images.pause(tmp_path / "pause")
    assert [path.name for path in cache.iterdir()] == ["lock"]


@pytest.mark.parametrize(
    ("names", "version"),
    [
        (["./usr/bin/python3.11", "./usr/share/doc/python3.11/README"], "3.11"),
        (["./usr/bin/python3", "./usr/lib/python3.13/os.py"], ""),
    ],
)
def test_the_version_of_debians_python_is_that_of_its_program(names, version):
    assert node_images.python_version(iter(names)) == version


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param(
            b"#!/home/me/.venv/bin/python\nimport ray\n", b"#!/usr/bin/python3\nimport ray\n", id="short path"
        ),
        pytest.param(
            b"#!/bin/sh\n'''exec' '/a long path/python' \"$0\" \"$@\"\n' '''\nimport ray\n",
            b"#!/usr/bin/python3\nimport ray\n",
            id="long path",
        ),
        pytest.param(b"#!/bin/sh\nexec ls\n", b"#!/bin/sh\nexec ls\n", id="shell"),
        pytest.param(b"\x7fELF\x02", b"\x7fELF\x02", id="binary"),
    ],
)
def test_scripts_find_the_images_python(script, expected):
    assert node_images.with_interpreter(script) == expected


def test_programs_and_packages_have_their_places(tmp_path):
    for name, mode in (("bin/ray", 0o755), ("ray/core.py", 0o644), ("ray/gcs_server", 0o755)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
        (tmp_path / name).chmod(mode)
    found = {
        entry.name: entry.mode for entry, _ in node_images.tree(tmp_path, "usr/local/lib/python3.11/dist-packages")
    }
    assert found == {
        "usr/local/bin/ray": 0o755,
        "usr/local/lib/python3.11/dist-packages/ray/core.py": 0o644,
        "usr/local/lib/python3.11/dist-packages/ray/gcs_server": 0o755,
    }


def test_user_1000_is_in_the_list_of_users():
    entry = tarfile.TarInfo("./usr/share/base-passwd/passwd.master")
    found = {member.name: content for member, content in node_images.with_user([(entry, b"root:x:0:0\n")])}
    assert found["etc/passwd"] == b"root:x:0:0\nray:x:1000:1000::/home/ray:/bin/bash\n"
    assert found["./usr/share/base-passwd/passwd.master"] == b"root:x:0:0\n"
