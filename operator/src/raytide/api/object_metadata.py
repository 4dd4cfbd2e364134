"""Decoder type for `metadata`, shared by the views of objects.

Contains only fields that a view reads; every field may be missing or null. Used by the views of pods, services,
ConfigMaps, nodes and quotas; custom resources use `base_model.ObjectMeta`, which is kept with the object (D3, D13).
"""

import msgspec

from raytide.api.limits import MAX_UID


class Owner(msgspec.Struct, gc=False):
    """One owner reference."""

    uid: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, gc=False, rename="camel"):
    """`metadata` as the API server sends it."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None

    @property
    def controller_uid(self) -> str:
        """Uid of the controlling owner, cut to MAX_UID: the API server checks no uid of an owner; empty when the object has none."""
        return next((owner.uid[:MAX_UID] for owner in self.owner_references or () if owner.controller), "")
