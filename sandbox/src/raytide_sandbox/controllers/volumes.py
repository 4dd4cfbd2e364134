"""Volume provisioner: PersistentVolumes for PersistentVolumeClaims.

Takes changes of claims; gives each pending one a PersistentVolume of its own, a directory on this machine, and deletes that
object with the claim. Every storage class is served, and no size is enforced. Not built: volumes that users create, expansion, and
protection of claims in use; the files of a deleted claim stay until the sandbox is deleted. One of the sandbox's controllers.
"""

from datetime import datetime
from functools import partial
from pathlib import PurePath
from typing import Final

from raytide_sandbox.apiserver.store import ObjectKey, Store
from raytide_sandbox.controllers.base import Json, Noted, attempt

CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"


class VolumeProvisioner:
    """Binds claims; without a directory for volumes they stay pending."""

    def __init__(self, store: Store, directory: PurePath | None) -> None:
        self._store = store
        self._directory = directory
        self._due: set[ObjectKey] = set()
        self._released: set[str] = set()

    def on_change(self, noted: Noted) -> None:
        """Queue a changed claim, or the volume of one that is gone."""
        if noted.key.resource != CLAIMS:
            return
        if noted.is_gone:
            self._due.discard(noted.key)
            self._released.add(_volume_name(noted.obj))
        else:
            self._due.add(noted.key)

    def act(self, now: datetime) -> datetime | None:  # noqa: ARG002 - of the interface
        """Bind the queued claims, and delete the volumes of deleted ones."""
        due, self._due = sorted(self._due), set()
        for key in due:
            entry = self._store.find(*key)
            if entry is not None and self._directory is not None:
                self._bind(entry.obj(), self._directory)
        released, self._released = sorted(self._released), set()
        for name in released:
            attempt(partial(self._store.delete, VOLUMES, "", name))
        return None

    def _bind(self, claim: Json, directory: PurePath) -> None:
        name, spec = _volume_name(claim), claim["spec"]
        if claim.get("status", {}).get("phase") == "Bound" or spec.get("volumeName") not in (None, name):
            return
        capacity = {"storage": ((spec.get("resources") or {}).get("requests") or {}).get("storage", "0")}
        modes = spec.get("accessModes") or []
        if self._store.find(VOLUMES, "", name) is None:
            volume = _build_volume(claim, str(directory / name), capacity)
            if not attempt(lambda: self._store.create(VOLUMES, volume)):
                return
            stored = self._store.get(VOLUMES, "", name)
            stored["status"] = {"phase": "Bound"}
            attempt(lambda: self._store.update(VOLUMES, stored, subresource="status"))
        spec["volumeName"] = name
        if attempt(lambda: self._store.update(CLAIMS, claim)):
            bound = self._store.get(CLAIMS, claim["metadata"]["namespace"], claim["metadata"]["name"])
            bound["status"] = {"phase": "Bound", "accessModes": modes, "capacity": capacity}
            attempt(lambda: self._store.update(CLAIMS, bound, subresource="status"))


def _volume_name(claim: Json) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def _build_volume(claim: Json, path: str, capacity: Json) -> Json:
    metadata, spec = claim["metadata"], claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": _volume_name(claim)},
        "spec": {
            "accessModes": spec.get("accessModes") or [],
            "capacity": capacity,
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                **{key: metadata[key] for key in ("namespace", "name", "uid")},
            },
            "hostPath": {"path": path, "type": "DirectoryOrCreate"},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec.get("storageClassName") or "",
            "volumeMode": "Filesystem",
        },
    }
