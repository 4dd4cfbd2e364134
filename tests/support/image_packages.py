"""A Python that imports only what the container image has installed.

`only_image_packages` writes a `sitecustomize.py` and returns the environment variables that load it: each import of a
package outside of requirements/image.txt fails as in the image. It can also give the operator another folder for the
service account, which has no flag. Used by tests that start Raytide's processes.
"""

import re
from importlib.metadata import packages_distributions
from pathlib import Path

LOCK = Path(__file__).parents[2] / "requirements" / "image.txt"

BLOCKER = """\
import sys
from importlib.abc import MetaPathFinder


class Blocker(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None


sys.meta_path.insert(0, Blocker())
"""
SERVICE_ACCOUNT = """
from pathlib import Path

from raytide.kube.kubeconfig import load_client_config

load_client_config.__kwdefaults__["service_account_dir"] = Path({folder!r})
"""


def locked_packages(lock: Path = LOCK) -> set[str]:
    """Names of a lock's packages, normalized."""
    return {normalized(name) for name in re.findall(r"(?m)^([\w.-]+)==", lock.read_text())}


def normalized(name: str) -> str:
    """The name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def blocked_modules() -> list[str]:
    """Top-level modules of installed packages that the image does not have."""
    in_image = {*locked_packages(), "raytide"}
    found = packages_distributions() | {"raytide_sandbox": ["raytide-sandbox"]}  # an editable install lists no modules
    return sorted(name for name, owners in found.items() if not in_image.intersection(map(normalized, owners)))


def only_image_packages(folder: Path, service_account: Path | None = None) -> dict[str, str]:
    """The environment of a process that imports only the image's packages."""
    folder.mkdir(parents=True, exist_ok=True)
    text = BLOCKER.format(blocked=set(blocked_modules()))
    if service_account is not None:
        text += SERVICE_ACCOUNT.format(folder=str(service_account))
    (folder / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": str(folder)}
