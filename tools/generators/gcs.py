"""Write the Python of gcs.proto, or check that the written one is current.

`python tools/generators/gcs.py` makes `gcs_pb2.py` and `gcs_pb2.pyi` beside the proto file; with `--check` it changes nothing and
fails if a file differs. protoc's own Python demands a protobuf at least as new as the protoc that wrote it, so only its
description of the messages and its types are taken: the classes come from protobuf's reflection, which every release
since 5 has, in a pool of their own, where Ray's messages cannot clash with ours.
"""

import importlib.resources
import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "operator/src/raytide/autoscaler/gcs"
NAME = "gcs"
WIDTH = 100

HEADER = '''"""Messages of gcs.proto, made by tools/generators/gcs.py; do not edit."""

from google.protobuf import descriptor_pool, message_factory

_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
'''
FOOTER = """)
DESCRIPTOR = _POOL.FindFileByName("{name}.proto")
for _name, _descriptor in DESCRIPTOR.message_types_by_name.items():
    globals()[_name] = message_factory.GetMessageClass(_descriptor)
"""


def generate() -> dict[Path, str]:
    """Every generated file and what it should say."""
    with tempfile.TemporaryDirectory() as folder:
        description = Path(folder, "description")
        options = [f"-I{FOLDER}", f"--pyi_out={folder}", f"--descriptor_set_out={description}", f"{NAME}.proto"]
        well_known = importlib.resources.files("grpc_tools") / "_proto"
        if protoc.main(["protoc", f"-I{well_known}", *options]):
            sys.exit("protoc rejected gcs.proto; its words stand above")
        files = descriptor_pb2.FileDescriptorSet.FromString(description.read_bytes()).file
        return {
            FOLDER / f"{NAME}_pb2.py": build_module(files[0].SerializeToString(deterministic=True)),
            FOLDER / f"{NAME}_pb2.pyi": Path(folder, f"{NAME}_pb2.pyi").read_text(),
        }


def build_module(description: bytes) -> str:
    """Python that makes a class for every message so described."""
    lines = [f"    {description[start : start + WIDTH]!r}\n" for start in range(0, len(description), WIDTH)]
    return HEADER + "".join(lines) + FOOTER.format(name=NAME)


def main() -> None:
    """Write, or compare."""
    files = generate()
    if "--check" not in sys.argv:
        for path, text in files.items():
            path.write_text(text)
        return
    stale = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
    if stale:
        sys.exit(f"not as gcs.proto says: {', '.join(stale)}; run `make generate` and commit")


if __name__ == "__main__":
    main()
