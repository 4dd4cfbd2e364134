"""Redis as a pod with a service, from the folder that RAYTIDE_TEST_REDIS names (tools/builders/redis_server.py)."""

import os
from pathlib import Path
from typing import Final

from support.ray_environment import PODS, SERVICES
from support.sandbox_process import Json

NAME: Final = "redis"
PORT: Final = 6390
"""Not Ray's: without network namespaces all pods share the machine's ports."""
MOUNT: Final = "/opt/redis"
PASSWORD: Final = "let-me-in"


def redis_objects() -> dict[str, Json]:
    """The pod and its service, by the path of their collection."""
    root = Path(os.environ["RAYTIDE_TEST_REDIS"])
    (loader,) = (root / "usr" / "lib64").glob("ld-linux*")
    libraries = ":".join(f"{MOUNT}/usr/lib/{path.name}" for path in (root / "usr" / "lib").glob("*-linux-gnu"))
    command = [f"{MOUNT}/usr/lib64/{loader.name}", "--library-path", libraries, f"{MOUNT}/usr/bin/redis-server"]
    options = [
        "--port",
        str(PORT),
        "--requirepass",
        PASSWORD,
        "--save",
        "",
        "--appendonly",
        "no",
        "--protected-mode",
        "no",
    ]
    labels = {"app": NAME}
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": "default", "labels": labels},
        "spec": {
            "containers": [
                {
                    "name": NAME,
                    "image": "rayproject/ray:2.60.0",
                    "command": [*command, *options],
                    "volumeMounts": [{"name": "root", "mountPath": MOUNT}],
                }
            ],
            "volumes": [{"name": "root", "hostPath": {"path": str(root)}}],
        },
    }
    service: Json = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {"selector": labels, "ports": [{"port": PORT, "targetPort": PORT}]},
    }
    return {PODS: pod, SERVICES: service}


ASK: Final = f"""
import socket, sys
with socket.create_connection(("{NAME}", {PORT}), 10) as redis:
    redis.sendall(b"AUTH {PASSWORD}\\r\\n" + " ".join(sys.argv[1:]).encode() + b"\\r\\n")
    answers = redis.makefile("rb")
    assert answers.readline() == b"+OK\\r\\n"
    print("ANSWER", answers.readline().decode().strip().lstrip(":+"))
"""
"""Program that sends its arguments as one command, and prints the first line of the answer."""
