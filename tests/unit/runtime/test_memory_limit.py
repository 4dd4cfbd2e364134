"""The memory limit of the container, from the files of both versions of cgroups."""

import pytest

from raytide.runtime.memory_limit import memory_limit_bytes


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.max": "536870912\n"}, 536870912),
        ({"memory.max": "max\n"}, 0),
        ({"memory/memory.limit_in_bytes": "268435456\n"}, 268435456),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0),
        ({"memory.max": "", "memory/memory.limit_in_bytes": "1\n"}, 1),
        ({}, 0),
    ],
    ids=["v2", "v2 without a limit", "v1", "v1 without a limit", "an unreadable file", "no cgroups"],
)
def test_the_limit_is_read_from_the_cgroup(tmp_path, files, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_limit_bytes(tmp_path) == expected


def test_a_changed_limit_is_read_again(tmp_path):
    for limit in (100, 200):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert memory_limit_bytes(tmp_path) == limit
