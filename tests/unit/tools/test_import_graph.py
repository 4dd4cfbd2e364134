"""Circular imports of a small package, between its modules and between its packages."""

import re
from pathlib import Path

import pytest

import import_graph

SOUND = {
    "app/core/values.py": "",
    "app/core/plan.py": "from app.core import values",
    "app/main.py": "import app.core.plan",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch, request):
    """An importable package with its own name, because Python remembers where it has found a name."""
    name = "app_" + re.sub(r"\W", "_", request.node.name)
    monkeypatch.syspath_prepend(tmp_path)

    def write(files: dict[str, str]) -> str:
        for path, text in (SOUND | files).items():
            file = tmp_path / path.replace("app/", f"{name}/", 1)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("app", name))
        return name

    return write


def test_a_package_without_circles(package, capsys):
    name = package({})
    assert import_graph.main(name) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"import graph of {name}: 5 modules and packages, 2 imports",
        "circles between modules: 0",
        "circles between packages, level 1: 0",
        "circles between packages, level 2: 0",
    ]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {"app/core/values.py": "def f():\n    import app.main"},
            {
                "modules": [["app.core.plan", "app.core.values", "app.main"]],
                "level 1": [["app.core", "app.main"]],
                "level 2": [["app.core.plan", "app.core.values", "app.main"]],
            },
            id="modules with an import in a function",
        ),
        pytest.param(
            {
                "app/core/io/read.py": "import app.kube.client",
                "app/kube/client.py": "",
                "app/kube/pod.py": "import app.core.plan",
            },
            {"modules": [], "level 1": [["app.core", "app.kube"]], "level 2": []},
            id="packages only",
        ),
        pytest.param(
            {
                "app/core/io/read.py": "import app.core.net.http",
                "app/core/net/http.py": "",
                "app/core/net/dns.py": "import app.core.io.write",
                "app/core/io/write.py": "",
            },
            {"modules": [], "level 1": [], "level 2": [["app.core.io", "app.core.net"]]},
            id="packages of one package",
        ),
    ],
)
def test_circles_are_found_and_fail(package, capsys, files, expected):
    name = package(files)
    assert import_graph.main(name) == 1
    printed: dict[str, list[list[str]]] = {}
    for line in capsys.readouterr().out.replace(name, "app").splitlines()[1:]:
        if line.startswith("circles"):
            found = printed.setdefault(
                line.split(":")[0].removeprefix("circles between ").removeprefix("packages, "), []
            )
        elif " imports " not in line:
            found.append(line.strip().split(", "))
    assert printed == expected


def test_the_imports_of_a_circle_are_printed(package, capsys):
    name = package({"app/core/values.py": "import app.core.plan"})
    import_graph.main(name)
    assert (
        f"""circles between modules: 1
  {name}.core.plan, {name}.core.values
    {name}.core.plan imports {name}.core.values
    {name}.core.values imports {name}.core.plan
"""
        in capsys.readouterr().out
    )
