"""Is this Ray new enough?

Takes `spec.rayVersion` as the user wrote it, gives three numbers or None. Reads it as KubeRay does (RC §1.3): an
optional `v`, at least two numbers, whatever follows ignored, so `v2.53.0rc1` counts as 2.53.0 and `nightly` as nothing.
Used by probes and validation.
"""

import re
from typing import Final, TypeAlias

RayVersion: TypeAlias = tuple[int, int, int]

_GENERIC: Final = re.compile(r"\s*v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:\.(0|[1-9][0-9]*))?(?![0-9])")


def parse_ray_version(text: str) -> RayVersion | None:
    """Major, minor and patch; None when it cannot be told."""
    match = _GENERIC.match(text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def is_at_least(text: str, version: RayVersion) -> bool:
    """Whether `text` names this version or a later one; an unreadable text does not."""
    parsed = parse_ray_version(text)
    return parsed is not None and parsed >= version
