"""What Docker asks runc for, less what the process has not."""

from pathlib import Path

import pytest

import runc_capabilities

ALL = "CapInh:\t0000000000000000\nCapBnd:\t000001ffffffffff\n"
WITHOUT_ONE = "CapBnd:\t000001fffeffffff\n"


@pytest.mark.parametrize(
    ("status", "names"), [(ALL, set()), (WITHOUT_ONE, {"CAP_SYS_RESOURCE"})], ids=["none", "CAP_SYS_RESOURCE"]
)
def test_missing(status, names):
    assert runc_capabilities.missing(status) == names


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("--root /run create --bundle /b --pid-file /p id", "/b/config.json"),
        ("exec --process /tmp/p --detach id", "/tmp/p"),
        ("--root /run start id", None),
        ("delete --force id", None),
    ],
)
def test_the_file_that_is_changed(words, file):
    assert runc_capabilities.specification(words.split()) == (Path(file) if file else None)


def capabilities():
    return {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "ambient": None}


@pytest.mark.parametrize("is_container", [True, False], ids=["create", "exec"])
def test_only_missing_capabilities_are_removed(is_container):
    process = {"args": ["sh"], "capabilities": capabilities()}
    specified = {"process": process} if is_container else process
    runc_capabilities.without(specified, {"CAP_SYS_RESOURCE"})
    assert process == {"args": ["sh"], "capabilities": {"bounding": ["CAP_CHOWN"], "ambient": []}}


def test_a_process_without_capabilities_stays_as_it_is():
    assert runc_capabilities.without({"process": {"args": []}}, {"CAP_BPF"}) == {"process": {"args": []}}
