"""CustomResourceDefinitions of this version, and their server-side apply.

The package contains the files of `crds/`. `apply_crds` applies each of them and waits until the API server has established
it, so that a newer operator never runs on older definitions: helm installs CRDs once and does not upgrade them. Fields and
labels of other managers stay. Called by `raytide crds`; D21.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from importlib import resources
from typing import Final

import msgspec.yaml

from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import CUSTOM_RESOURCE_DEFINITIONS, Key, Manifest
from raytide.kube.client import Client, PatchKind
from raytide.runtime.clock import Clock

FIELD_MANAGER: Final = "raytide-crds"
ESTABLISHED_WITHIN_S: Final = 60.0
CHECK_INTERVAL_S: Final = 0.5


def crd_texts() -> tuple[str, ...]:
    """The files of the package, in the order of their names."""
    files = [file for file in resources.files("raytide").joinpath("crds").iterdir() if file.name.endswith(".yaml")]
    return tuple(file.read_text(encoding="utf-8") for file in sorted(files, key=lambda file: file.name))


def load_crds() -> tuple[Manifest, ...]:
    """The same as objects."""
    return tuple(msgspec.yaml.decode(text) for text in crd_texts())


async def apply_crds(client: Client, crds: Iterable[Manifest], *, clock: Clock) -> AsyncIterator[str]:
    """Apply each definition and yield its name once it is established.

    Raises `ApiStatusError` if the API server rejects one, and `ApiUnavailableError` without an answer or if it is not
    established within a minute.
    """
    for crd in crds:
        name = crd["metadata"]["name"]
        key = Key("", name)
        applied = await client.patch(
            CUSTOM_RESOURCE_DEFINITIONS,
            key,
            crd,
            kind=PatchKind.APPLY,
            field_manager=FIELD_MANAGER,
            is_forced=True,
        )
        ends_at = clock.monotonic() + ESTABLISHED_WITHIN_S
        while not is_established(applied):
            if clock.monotonic() >= ends_at:
                raise ApiUnavailableError(
                    f"CustomResourceDefinition {name} is not established after {ESTABLISHED_WITHIN_S:g} s: see its conditions"
                )
            await asyncio.sleep(CHECK_INTERVAL_S)
            applied = await client.get(CUSTOM_RESOURCE_DEFINITIONS, key) or {}
        yield name


def is_established(crd: Manifest) -> bool:
    """Whether the API server serves the kind."""
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Established" and each.get("status") == "True" for each in conditions)
