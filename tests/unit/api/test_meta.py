"""Paths of objects."""

import pytest

from raytide.api.meta import PERSISTENT_VOLUME_CLAIMS


@pytest.mark.parametrize("name", ["../secrets/x", "x?watch=1", "x#y", "x/status"])
def test_a_name_from_a_spec_leads_to_no_other_path(name):
    path = PERSISTENT_VOLUME_CLAIMS.path("default", name)
    assert path.startswith("/api/v1/namespaces/default/persistentvolumeclaims/")
    assert not set("/?#").intersection(path.removeprefix("/api/v1/namespaces/default/persistentvolumeclaims/"))
