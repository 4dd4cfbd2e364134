"""Who trains, and who was born and who died?

The census of census.py for pods of TrainingJobs: by owner and role, with the index for the rank. Read by the judge, the
scenarios and the end-state oracle of jobs.
"""

from raytide.api import trainingjob_constants as constants
from raytide_sandbox.apiserver.store import Change

from simulation.census import ENDED, Census, Citizen, decode_pod


class JobCensus(Census):
    """Everybody who is owned by a TrainingJob; `group` is the role."""

    @staticmethod
    def _seen(change: Change) -> Citizen | None:
        entry = change.entry
        pod = decode_pod(entry.raw)
        owner = next((each for each in pod.metadata.owner_references if each.kind == "TrainingJob"), None)
        if owner is None:
            return None
        is_alive = not entry.is_terminating and pod.status.phase not in ENDED and change.type != "DELETED"
        is_ready = is_alive and any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
        return Citizen(
            uid=entry.uid,
            name=change.key.name,
            owner_uid=owner.uid,
            cluster=f"{change.key.namespace}/{owner.name}",
            group=entry.labels.get(constants.ROLE_LABEL, ""),
            index=entry.labels.get(constants.INDEX_LABEL, ""),
            replica="",
            host="",
            made_for="",
            is_alive=is_alive,
            is_ready=is_ready,
        )

    def with_index(self, owner_uid: str, role: str, index: str) -> list[Citizen]:
        """Everybody with that place who has not ended, dying ones included."""
        return [each for each in self.members(owner_uid) if (each.group, each.index) == (role, index)]
