"""View of a TrainingJob's headless service or membership ConfigMap.

Decodes either from JSON into a small frozen view: identity, owner, job label and, of a ConfigMap, which texts `data` has. Nothing
else is kept, because services are never updated and only the content of a ConfigMap is compared. Created by the informers,
read by plan (D3; TJ §7.7).
"""

from collections.abc import Mapping
from hashlib import sha256
from heapq import nsmallest
from sys import intern
from typing import Any, Final

import msgspec

from raytide.api import trainingjob_constants as constants
from raytide.api.limits import MAX_MARK
from raytide.api.meta import Key
from raytide.api.object_metadata import Metadata

MAX_FILES: Final = 16
"""Four are of a job's membership. Others are removed, so that of more all are seen in turn."""


def digest(text: str) -> bytes:
    """Which text it is."""
    return sha256(text.encode()).digest()


class JobObject(msgspec.Struct, frozen=True, kw_only=True):
    """One service or ConfigMap of a TrainingJob."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    owner_uid: str = ""
    job: str = ""
    """The TrainingJob that its label names."""
    deletion_timestamp: str = ""
    files: Mapping[str, bytes] = {}
    """Name -> `digest` of an entry of a ConfigMap's `data`, at most MAX_FILES; empty for a service. Any client that may create ConfigMaps
    may give them the label, so that their text is not kept (FD:SEC3-2)."""
    membership_revision: str = ""
    """Empty for a service, and for a ConfigMap not written since revisions exist."""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.namespace, self.name)

    @property
    def job_key(self) -> Key:
        """The TrainingJob that the label names."""
        return Key(self.namespace, self.job)

    @property
    def is_terminating(self) -> bool:
        """Whether its deletion was requested."""
        return bool(self.deletion_timestamp)

    def marked_terminating(self, at: str) -> "JobObject":
        """The same object marked as terminating."""
        return self if self.deletion_timestamp else msgspec.structs.replace(self, deletion_timestamp=at)


class JobObjectDocument(msgspec.Struct, gc=False):
    """A service's or ConfigMap's JSON as a decoder type."""

    metadata: Metadata
    data: dict[str, str] | None = None


_decoder = msgspec.json.Decoder(JobObjectDocument)


def decode_job_object(document: bytes | msgspec.Raw) -> JobObject:
    """The view of one object's JSON; raises msgspec.MsgspecError when it cannot be decoded."""
    return view_of(_decoder.decode(document))


def job_object_from_manifest(manifest: Mapping[str, Any]) -> JobObject:
    """The view of an object given as a manifest."""
    return view_of(msgspec.convert(manifest, JobObjectDocument))


def view_of(document: JobObjectDocument) -> JobObject:
    """Reduce a decoded object to its view."""
    meta, data = document.metadata, document.data or {}
    return JobObject(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        owner_uid=meta.controller_uid,
        job=intern((meta.labels or {}).get(constants.JOB_LABEL, "")),
        deletion_timestamp=meta.deletion_timestamp or "",
        files={name: digest(data[name]) for name in nsmallest(MAX_FILES, data)},
        membership_revision=(meta.annotations or {}).get(constants.MEMBERSHIP_ANNOTATION, "")[:MAX_MARK],
    )
