"""Patches in flight, and unexpected responses of the API server."""

from datetime import UTC, datetime

import pytest

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import Key
from raytide.api.sharing_record import SharingRecord
from raytide.fairshare.patch_plan import JobPatch
from raytide.fairshare.patcher import JobPatcher
from raytide.runtime.clock import Clock
from support.training_builders import parsed_job

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Server:
    """No patch gets an answer; what is read is refused."""

    def __init__(self):
        self.reads = []

    async def patch(self, *_request):
        raise ApiUnavailableError("cut off", is_outcome_unknown=True)

    async def get(self, _resource, key):
        self.reads.append(key)
        raise ApiStatusError(403, "Forbidden", "trainingjobs is forbidden")


@pytest.mark.rule("TJ:3.19")
async def test_a_job_that_may_not_be_read_any_more_stops_no_later_pass():
    server, job = Server(), parsed_job()
    writing = JobPatcher(server, clock=Clock())
    with pytest.raises(ApiUnavailableError):
        await writing.write([JobPatch(job, 2, SharingRecord(job.metadata.uid, 2, at=NOW), 1)])
    await writing.read_again()
    await writing.read_again()
    assert server.reads == [Key("default", "demo")], "asked once; the informer tells the rest"
