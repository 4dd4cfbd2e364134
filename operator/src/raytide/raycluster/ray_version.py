"""Parser and comparison of `spec.rayVersion`.

Takes the version as the user wrote it, and returns three numbers or None. Parses it as KubeRay does (RC §1.3): an
optional `v`, at least two numbers, the rest ignored, so `v2.53.0rc1` is 2.53.0 and `nightly` is None. Used by probes
and validation.
"""

import re
from typing import Final, TypeAlias

RayVersion: TypeAlias = tuple[int, int, int]

_GENERIC: Final = re.compile(r"\s*v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:\.(0|[1-9][0-9]*))?(?![0-9])")


def parse_ray_version(text: str) -> RayVersion | None:
    """Major, minor and patch; None when the text is not a version."""
    match = _GENERIC.match(text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def is_at_least(text: str, version: RayVersion) -> bool:
    """Whether `text` is this version or a later one; False for a text that is not a version."""
    parsed = parse_ray_version(text)
    return parsed is not None and parsed >= version
