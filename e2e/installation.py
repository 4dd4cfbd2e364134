"""One release of the chart under test: its names, and values that later tests need."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Installation:
    """Where the operator and the Ray clusters are in this run."""

    namespace: str
    """The operator's."""
    ray_namespace: str
    image: str
    release: str = "raytide"
    chart: Path = ROOT / "helm" / "raytide"
    sample: Path = ROOT / "samples" / "raycluster.yaml"
    install_s: float = 0.0
    """From the start of `helm install` until the operator was ready."""
    granted: set[str] = field(default_factory=set)
    """What the chart's roles allow, as read from the cluster."""

    @property
    def user(self) -> str:
        """Who the operator is to the API server."""
        return f"system:serviceaccount:{self.namespace}:{self.release}"

    @property
    def image_values(self) -> list[str]:
        """The image as options of helm."""
        repository, _, tag = self.image.rpartition(":")
        return ["--set", f"image.repository={repository}", "--set-string", f"image.tag={tag}"]

    @property
    def documented_commands(self) -> list[list[str]]:
        """The README's commands for a cluster, with the image, the namespaces and the folder of this run."""
        text = (ROOT / "README.md").read_text()
        block = text.partition("\nOn other clusters")[2].partition("```console\n")[2].partition("```")[0]
        repository, _, tag = self.image.rpartition(":")
        ours = {
            "image.repository=registry.example.com/raytide": f"image.repository={repository}",
            "image.tag=0.1.0": f"image.tag={tag}",
            "helm/raytide": str(self.chart),
            "samples/raycluster.yaml": str(self.sample),
        }
        commands = []
        for line in block.replace("\\\n", " ").splitlines():
            words = [ours.get(word, word) for word in shlex.split(line)]
            if "--namespace" in words:
                words[words.index("--namespace") + 1] = self.namespace
            commands.append(words)
        return commands

    @property
    def of_release(self) -> str:
        """Selects what helm has made."""
        return f"app.kubernetes.io/instance={self.release}"
