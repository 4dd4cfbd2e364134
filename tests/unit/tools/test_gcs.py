"""The generated messages are those of gcs.proto, and work with any protobuf since 5."""

import sys

import pytest

import gcs as tool
from raytide.autoscaler.gcs import gcs_pb2


def test_what_is_committed_is_what_the_generator_writes() -> None:
    assert {path.name: path.read_text() == text for path, text in tool.generate().items()} == {
        "gcs_pb2.py": True,
        "gcs_pb2.pyi": True,
    }


def test_a_generated_file_that_was_edited_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "gcs_pb2.py").write_text("by hand")
    (tmp_path / "gcs_pb2.pyi").write_text("right")
    monkeypatch.setattr(tool, "generate", lambda: {tmp_path / "gcs_pb2.py": "right", tmp_path / "gcs_pb2.pyi": "right"})
    monkeypatch.setattr(sys, "argv", ["gcs.py", "--check"])
    with pytest.raises(SystemExit, match=r"not generated from the current gcs.proto: gcs_pb2.py; run `make generate`"):
        tool.main()
    monkeypatch.setattr(sys, "argv", ["gcs.py"])
    tool.main()
    assert (tmp_path / "gcs_pb2.py").read_text() == "right"


def test_no_version_of_protobuf_is_checked() -> None:
    assert "runtime_version" not in (tool.FOLDER / "gcs_pb2.py").read_text()


def test_the_messages_live_in_a_pool_of_their_own() -> None:
    from google.protobuf import descriptor_pool

    with pytest.raises(KeyError):
        descriptor_pool.Default().FindFileByName("gcs.proto")
    assert gcs_pb2.NodeState(node_id=b"1").node_id == b"1"
