"""What does every view of an object take from its `metadata`?

A decoder type for the JSON of any object: only what somebody reads, everything may be missing or null. Used by the views
of pods, services, ConfigMaps, nodes and quotas; custom resources have `value.ObjectMeta`, which is kept longer (D3, D13).
"""

import msgspec


class Owner(msgspec.Struct, gc=False):
    """One owner reference."""

    uid: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, gc=False, rename="camel"):
    """`metadata` as the API sends it."""

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
        """Uid of the controlling owner; empty when nobody controls the object."""
        return next((owner.uid for owner in self.owner_references or () if owner.controller), "")
