"""Writing of a private file: as a whole or not at all, and never over another one without being asked to.

Raises WriteError with one line. Called by `raytide diagnose`.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


class WriteError(Exception):
    """The file cannot be written; the message is one line."""


def check_target(path: Path, *, is_replaced: bool) -> None:
    """Raise WriteError for what can be seen before anything is collected."""
    folder = path.parent
    if not folder.is_dir():
        raise WriteError(f"cannot write {path}: {folder} is not a folder")
    if path.is_dir():
        raise WriteError(f"cannot write {path}: it is a folder")
    if os.path.lexists(path) and not is_replaced:
        raise _exists(path)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise WriteError(f"cannot write {path}: no permission to write to {folder}")


def write_file(path: Path, content: bytes, *, is_replaced: bool) -> None:
    """Write it with mode 0600, by a temporary file beside it."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=".raytide-diagnose-", dir=path.parent)  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            _move(name, path, is_replaced=is_replaced)
        finally:
            with suppress(FileNotFoundError):
                Path(name).unlink()
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}") from error


def _move(name: str, path: Path, *, is_replaced: bool) -> None:
    """Give it its name; raises FileExistsError if another file has it by now."""
    if not is_replaced:
        try:
            os.link(name, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: reserve the name instead
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        else:
            return
    Path(name).replace(path)


def _exists(path: Path) -> WriteError:
    return WriteError(f"{path} exists: name another file by -o, or pass --force")
