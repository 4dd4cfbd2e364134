"""Manifest files as the bodies of requests, each parsed once per process: the text of a CRD takes a tenth of a second or more."""

import functools
from pathlib import Path

import msgspec
import yaml


@functools.cache
def body_of(file: Path) -> bytes:
    """The object of that file as JSON, which `kubectl apply -f` sends."""
    return msgspec.json.encode(yaml.load(file.read_text(), Loader=yaml.CSafeLoader))
