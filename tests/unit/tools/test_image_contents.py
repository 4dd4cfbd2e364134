"""What `make image` finds wrong with an image's files, in small archives as builders write them."""

import io
import json
import tarfile
import zipfile

import pytest

from image_contents import LARGEST_MB, File, Image, privilege_problems, problems, read_image, size_problems

PACKAGES = "opt/raytide/lib/python3.13/site-packages"
CONFIG = {"User": "1000:100", "Entrypoint": ["raytide"], "Cmd": ["operator"]}
LOCK = "click==8.5.1 \\\n    --hash=sha256:00\npyyaml==6.0.3 \\\n    --hash=sha256:00\n"
WHEEL = {"raytide/__init__.py": b"one", "raytide-0.1.0.dist-info/RECORD": b"short"}
INSTALLED = {
    f"{PACKAGES}/raytide/__init__.py": b"one",
    f"{PACKAGES}/raytide/__pycache__/__init__.cpython-313.pyc": b"code",
    f"{PACKAGES}/raytide-0.1.0.dist-info/RECORD": b"with the installer's lines",
    f"{PACKAGES}/raytide-0.1.0.dist-info/METADATA": b"",
    f"{PACKAGES}/click-8.5.1.dist-info/METADATA": b"",
    f"{PACKAGES}/PyYAML-6.0.3.dist-info/METADATA": b"",
}
BASE = {"etc/passwd": b"root", "usr/bin/env": b"print", "tmp/": 0o1777}


def layer(entries) -> bytes:
    """A layer's archive: content of files, mode of folders (their names end with /)."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, value in entries.items():
            entry = tarfile.TarInfo(name.rstrip("/"))
            content, entry.mode = value if isinstance(value, tuple) else (value, 0o644)
            if name.endswith("/"):
                entry.type, entry.mode, content = tarfile.DIRTYPE, content, b""
            if name.startswith("capable"):
                entry.pax_headers = {"SCHILY.xattr.security.capability": "x"}
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


@pytest.fixture
def world(tmp_path):
    """Writes an archive, a wheel and a lock, and returns the problems of the image."""

    def find(*layers, config=CONFIG, wheel=WHEEL, lock=LOCK):
        files = {f"{index}/layer.tar": layer(entries) for index, entries in enumerate((BASE, *layers))}
        manifest = [{"Config": "config.json", "Layers": list(files)}]
        files |= {
            "config.json": json.dumps({"config": config}).encode(),
            "manifest.json": json.dumps(manifest).encode(),
        }
        (tmp_path / "image.tar").write_bytes(layer(files))
        with zipfile.ZipFile(tmp_path / "raytide.whl", "w") as archive:
            for name, content in wheel.items():
                archive.writestr(name, content)
        (tmp_path / "image.txt").write_text(lock)
        return problems(read_image(tmp_path / "image.tar", 1), tmp_path / "raytide.whl", tmp_path / "image.txt")

    return find


def test_an_image_as_it_should_be(world):
    assert world(INSTALLED) == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        pytest.param({"usr/bin/su": (b"x", 0o4755)}, "/usr/bin/su is setuid or setgid (4755)", id="setuid"),
        pytest.param({"usr/bin/wall": (b"x", 0o2755)}, "/usr/bin/wall is setuid or setgid (2755)", id="setgid"),
        pytest.param({"usr/bin/dash": b"x"}, "/usr/bin/dash is a shell", id="a shell"),
        pytest.param({"bin/sh": b"x"}, "/bin/sh is a shell", id="a shell where /bin is a folder"),
        pytest.param({"capable": b"x"}, "/capable has file capabilities", id="file capabilities"),
        pytest.param(
            {f"{PACKAGES}/raytide_sandbox/cli.py": b"x"},
            f"/{PACKAGES}/raytide_sandbox/cli.py is of the sandbox",
            id="the sandbox",
        ),
        pytest.param(
            {"etc/pip.conf": b"x"},
            "/etc/pip.conf is a setting of the machine that built the image",
            id="pip's settings",
        ),
        pytest.param(
            {f"{PACKAGES}/kubernetes-37.0.2.dist-info/METADATA": b""},
            "kubernetes 37.0.2 is installed and not in image.txt",
            id="a package that is not locked",
        ),
        pytest.param(
            {f"{PACKAGES}/raytide/__init__.py": b"two"},
            "raytide/__init__.py is not as in the wheel",
            id="another content",
        ),
        pytest.param(
            {f"{PACKAGES}/raytide/more.py": b"x"}, "raytide/more.py is not in the wheel", id="a file too many"
        ),
    ],
)
def test_each_of_them_is_a_problem(world, changed, problem):
    assert world(INSTALLED | changed) == [problem]


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ("raytide/__init__.py", "raytide/__init__.py of the wheel is not installed"),
        ("click-8.5.1.dist-info/METADATA", "click 8.5.1 of image.txt is not installed"),
    ],
)
def test_what_is_missing_is_a_problem(world, missing, problem):
    assert world({name: text for name, text in INSTALLED.items() if not name.endswith(missing)}) == [problem]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"User": ""}, "it runs as root, not as 1000:100"),
        ({"User": "1000"}, "it runs as 1000, not as 1000:100"),
        ({"Cmd": ["sh"]}, "it starts [['raytide'], ['sh']], not raytide operator"),
    ],
)
def test_another_start_is_a_problem(world, config, problem):
    assert world(INSTALLED, config=CONFIG | config) == [problem]


def test_a_later_layer_clears_a_setuid_bit(world):
    assert world({"usr/bin/su": (b"x", 0o4755)}, INSTALLED | {"usr/bin/su": (b"x", 0o755)}) == []


@pytest.mark.parametrize(
    "whiteout", [{"usr/bin/.wh.su": b""}, {"usr/.wh.bin": b""}, {"usr/bin/.wh..wh..opq": b"", "usr/bin/other": b""}]
)
def test_what_a_later_layer_removes_is_not_there(world, whiteout):
    assert world({"usr/bin/su": (b"x", 0o4755)}, INSTALLED | whiteout) == []


def test_folders_may_have_a_set_group_id_bit(world):
    assert world(INSTALLED | {"var/local/": 0o2775}) == []


def test_a_hard_link_to_a_setuid_file_counts():
    assert list(privilege_problems({"bin/su": File(0o4755, 0)})) == ["/bin/su is setuid or setgid (4755)"]


def test_layers_above_the_base_have_a_bound(world, tmp_path):
    assert world(INSTALLED) == []
    image = read_image(tmp_path / "image.tar", 1)
    assert (image.own_bytes, image.total_bytes) == (sum(map(len, INSTALLED.values())), image.own_bytes + 9)
    assert list(size_problems(Image({}, {}, LARGEST_MB * 10**6, 0))) == []
    assert list(size_problems(Image({}, {}, LARGEST_MB * 10**6 + 10**5, 0))) == [
        "its layers have 80.1 MB, more than 80 MB"
    ]
