"""Version of the API server, from the body of `GET /version`. Pure; called by manager/main.py."""

import re

import msgspec


class _Version(msgspec.Struct, gc=False):
    major: str = ""
    minor: str = ""


def minor_version(body: bytes) -> int:
    """The minor version of Kubernetes 1, without the `+` of some providers; 0 for any other body."""
    try:
        version = msgspec.json.decode(body, type=_Version)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0
    found = re.fullmatch(r"(\d{1,4})\+?", version.minor, re.ASCII)
    return int(found[1]) if found and version.major == "1" else 0
