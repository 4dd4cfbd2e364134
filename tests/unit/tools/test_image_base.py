"""The base image from Debian's packages: the layer is what installing them would give."""

import json
import stat
import tarfile

import pytest

from image_base import LABELS, Layer, merged_path, write_archive
from support.distributions import unpack


def file(name, content=b"x", mode=0o644):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    return entry, content


def link(name, target, kind=tarfile.SYMTYPE):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry, None


def folder(name):
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    return entry, None


PACKAGES = [
    [folder("."), folder("./bin"), file("./bin/bash"), folder("./var/run"), file("./usr/share/doc/bash/copyright")],
    [file("./usr/share/base-passwd/passwd.master", b"root:x:0:0"), file("./usr/bin/dash")],
    [file("./usr/share/ca-certificates/b.crt", b"B\n"), file("./usr/share/ca-certificates/a.crt", b"A\n")],
    [file("./bin/bash", b"of a second package"), link("./bin/rbash", "./bin/bash", tarfile.LNKTYPE)],
    [file("./lib/x86_64-linux-gnu/libz.so.1"), link("./lib64/ld.so", "/lib/ld.so")],
]


@pytest.fixture
def layer(tmp_path):
    """The archive of a layer with these packages."""
    path = tmp_path / "layer.tar"
    with tarfile.open(path, "w") as archive:
        made = Layer(archive)
        for package in PACKAGES:
            made.add_package(package)
        made.finish()
    return path


@pytest.fixture
def unpacked(layer, tmp_path):
    with tarfile.open(layer) as archive:
        names = archive.getnames()
    assert len(names) == len(set(names))
    unpack(layer, tmp_path / "root")
    return tmp_path / "root"


def test_packages_with_files_in_bin_and_lib_go_to_usr(unpacked):
    assert (unpacked / "usr/bin/bash").read_bytes() == b"x"
    assert (unpacked / "bin/bash").samefile(unpacked / "usr/bin/rbash")
    assert (unpacked / "lib").readlink().as_posix() == "usr/lib"
    assert (unpacked / "lib64").readlink().as_posix() == "usr/lib64"
    assert not (unpacked / "sbin").exists()


def test_what_maintainer_scripts_make_is_there(unpacked):
    assert (unpacked / "etc/passwd").read_bytes() == b"root:x:0:0"
    assert (unpacked / "etc/ssl/certs/ca-certificates.crt").read_bytes() == b"A\nB\n"
    assert (unpacked / "usr/bin/sh").readlink().as_posix() == "dash"
    assert (unpacked / "var/run").readlink().as_posix() == "/run"
    assert stat.S_IMODE((unpacked / "tmp").stat().st_mode) == 0o1777


def test_documentation_is_left_out(unpacked):
    assert not (unpacked / "usr/share/doc").exists()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("./bin/sh", "usr/bin/sh"),
        ("./bin/", "bin"),
        ("./", ""),
        ("./binaries/x", "binaries/x"),
        ("usr/lib/x", "usr/lib/x"),
    ],
)
def test_paths_of_a_merged_usr(name, path):
    assert merged_path(name) == path


def test_the_archive_is_one_that_docker_loads(layer, tmp_path):
    write_archive(layer, tmp_path / "base.tar", "localhost/base:1", {"Labels": LABELS})
    with tarfile.open(tmp_path / "base.tar") as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(manifest["Config"]))
        (name,) = manifest["Layers"]
        assert archive.extractfile(name).read() == layer.read_bytes()
    assert manifest["RepoTags"] == ["localhost/base:1"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{name.removesuffix('.tar')}"]
    assert config["config"]["Labels"] == {"io.raytide.base": "debian-packages"}
