"""Write the Python of gcs.proto, or check that it is current.

`python tools/generators/gcs.py` writes `gcs_pb2.py` and `gcs_pb2.pyi` beside the proto file; with `--check` it fails if a file differs.
The Python of protoc requires a protobuf at least as new as protoc. So only its message descriptors and types are used: protobuf's
reflection (since release 5) creates the classes, in a descriptor pool of their own, without conflicts with Ray's messages.
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
    """Text of each generated file by its path."""
    with tempfile.TemporaryDirectory() as folder:
        description = Path(folder, "description")
        options = [f"-I{FOLDER}", f"--pyi_out={folder}", f"--descriptor_set_out={description}", f"{NAME}.proto"]
        well_known = importlib.resources.files("grpc_tools") / "_proto"
        if protoc.main(["protoc", f"-I{well_known}", *options]):
            sys.exit("protoc rejected gcs.proto; its errors are above")
        files = descriptor_pb2.FileDescriptorSet.FromString(description.read_bytes()).file
        return {
            FOLDER / f"{NAME}_pb2.py": build_module(files[0].SerializeToString(deterministic=True)),
            FOLDER / f"{NAME}_pb2.pyi": Path(folder, f"{NAME}_pb2.pyi").read_text(),
        }


def build_module(description: bytes) -> str:
    """Text of the module that creates a class for each message of these descriptors."""
    lines = [f"    {description[start : start + WIDTH]!r}\n" for start in range(0, len(description), WIDTH)]
    return HEADER + "".join(lines) + FOOTER.format(name=NAME)


def main() -> None:
    """Write the files, or with `--check` compare them."""
    files = generate()
    if "--check" not in sys.argv:
        for path, text in files.items():
            path.write_text(text)
        return
    stale = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
    if stale:
        sys.exit(f"not generated from the current gcs.proto: {', '.join(stale)}; run `make generate` and commit")


if __name__ == "__main__":
    main()
