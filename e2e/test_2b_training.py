"""A user submits an elastic training job to the operator installed by helm; it grows, is scaled down, and ends.

The third part of the story: master, parameter server and trainers are small real programs that meet through the variables
the operator sets. The job grows by itself into the capacity of the nodes, `kubectl scale` resizes it, and when the master says
that it is enough the trainers end and with them the job. The design's own example waits for GPUs that no node has.
"""

import json
import time

import yaml

from cluster import PATIENCE, eventually, get, is_ready, kubectl, listed, names, within
from scenario import everything

JOB = "elastic"
LEAST, MOST = 1, 4
SEED = "job-1"

MASTER = """
import http.server, os
word = [b"go on"]
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(word[0])
    def do_POST(self):
        word[0] = b"enough"
        self.do_GET()
http.server.ThreadingHTTPServer((os.environ["POD_IP"], 8080), Answer).serve_forever()
"""
TRAINER = """
import os, time, urllib.request
print("rank", os.environ["PADDLE_TRAINER_ID"], flush=True)
def ask():
    try:
        return urllib.request.urlopen("http://" + os.environ["RAYTIDE_MASTER_ENDPOINT"], timeout=5).read()
    except OSError:
        return b""
while ask() != b"enough":
    time.sleep(0.2)
"""
ENOUGH = """
import os, urllib.request
url = "http://" + os.environ["POD_IP"] + ":8080"
print(urllib.request.urlopen(urllib.request.Request(url, b"", method="POST"), timeout=5).read().decode())
"""

WAIT_FOR_SIZE = """
import os, pathlib, sys, time
file = pathlib.Path(os.environ["RAYTIDE_MEMBERSHIP_DIR"], "world_size")
while file.read_text().strip() != sys.argv[1]:
    time.sleep(0.05)
"""
ANNOUNCED_WITHIN_S = 5.0


def role(**more):
    """Small, and terminated at once: it has nothing to save."""
    amounts = {"cpu": "100m", "memory": "64Mi"}
    return {"resources": {"requests": amounts, "limits": amounts}, "gracePeriodSeconds": 1, **more}


def training_job(installation):
    """Any image with Python will do; that of the Ray sample is there."""
    (ray, *_) = yaml.safe_load_all(installation.sample.read_text())
    image = ray["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
    master = {"name": "master", "command": ["python", "-c", MASTER]}
    spec = {
        "framework": "generic",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "fault_tolerant": True,
        "master": role(template={"spec": {"containers": [master]}}),
        "pserver": role(entrypoint="exec sleep 3600", **{"min-instance": 1, "max-instance": 1}),
        "trainer": role(entrypoint=f"exec python -c '{TRAINER}'", **{"min-instance": LEAST, "max-instance": MOST}),
        "scaling": {"growCooldownSeconds": 600},
    }
    return {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "metadata": {"name": JOB}, "spec": spec}


def job(installation, name=JOB):
    return get("trainingjobs", name, installation.ray_namespace)


def condition(installation, name, kind):
    """One condition; empty while there is none."""
    found = job(installation, name).get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == kind), {})


def wait_for_trainers(installation, count, deadline_s):
    """Exactly so many, all ready, those with the lowest numbers; and the job knows it."""
    wanted = {f"{JOB}-trainer-{index}" for index in range(count)}

    def check():
        pods = listed("pods", installation.ray_namespace, f"paddle-job={JOB}")
        status = job(installation).get("status", {})
        is_so = names(pods) == wanted and all(map(is_ready, pods)) and status.get("trainer", {}).get("ready") == count
        return is_so, (sorted(names(pods)), status.get("phase"), status.get("trainer"))

    eventually(check, f"{count} ready trainers", deadline_s)


def test_helm_has_installed_the_kind():
    assert "trainingjobs.paddlepaddle.org" in names(listed("crds"))


def test_a_job_starts_whole_and_grows_into_free_capacity(installation):
    manifest = json.dumps(training_job(installation))
    kubectl("apply", "-n", installation.ray_namespace, "-f", "-", stdin=manifest)
    wait_for_trainers(installation, MOST, deadline_s=90)
    others = [f"paddle-job-{role}={JOB}" for role in ("master", "pserver")]
    found = [names(listed("pods", installation.ray_namespace, selector)) for selector in others]
    assert found == [{f"{JOB}-master"}, {f"{JOB}-pserver-0"}]
    kubectl(
        "wait", "-n", installation.ray_namespace, "--for=condition=Running", f"tj/{JOB}",
        f"--timeout={within(30)}", deadline_s=35,
    )  # fmt: skip


def test_kubectl_shows_the_size_of_a_job_and_its_events(installation):
    table = kubectl("get", "tj", JOB, "-n", installation.ray_namespace)
    assert {"MIN", "MAX", "CURRENT", "SCORE", "PHASE"} <= set(table.split())
    output = kubectl("describe", "tj", JOB, "-n", installation.ray_namespace)
    assert "ScaledUp" in output


def test_kubectl_scale_resizes_the_job(installation):
    kubectl("scale", f"tj/{JOB}", "--replicas=2", "-n", installation.ray_namespace)
    wait_for_trainers(installation, 2, deadline_s=60)
    kubectl("scale", f"tj/{JOB}", "--replicas=3", "-n", installation.ray_namespace)
    wait_for_trainers(installation, 3, deadline_s=60)


def test_a_trainer_that_stays_sees_the_new_size_within_seconds(installation, figures):
    """A kubelet alone updates mounted ConfigMaps about once a minute."""
    kubectl("scale", f"tj/{JOB}", "--replicas=2", "-n", installation.ray_namespace)
    started = time.monotonic()
    command = ("exec", "-n", installation.ray_namespace, f"{JOB}-trainer-0", "--", "python", "-c", WAIT_FOR_SIZE, "2")
    kubectl(*command, deadline_s=90)
    took_s = time.monotonic() - started
    figures.append(f"seconds from kubectl scale to the new size in a running trainer: {took_s:.1f}")
    assert took_s < ANNOUNCED_WITHIN_S * PATIENCE
    wait_for_trainers(installation, 2, deadline_s=60)


def test_it_succeeds_when_its_trainers_are_done(installation):
    output = kubectl("exec", "-n", installation.ray_namespace, f"{JOB}-master", "--", "python", "-c", ENOUGH)
    assert "enough" in output
    kubectl(
        "wait", "-n", installation.ray_namespace, "--for=condition=Succeeded", f"tj/{JOB}",
        f"--timeout={within(60)}", deadline_s=65,
    )  # fmt: skip
    assert job(installation)["status"]["phase"] == "Succeeded"


def test_the_designs_example_waits_for_gpus(installation):
    sample = installation.sample.with_name("trainingjob-seed.yaml")
    kubectl("apply", "-n", installation.ray_namespace, "-f", str(sample))

    def check():
        found = condition(installation, SEED, "Waiting")
        return "nvidia.com/gpu" in found.get("message", ""), found

    eventually(check, "it says that it needs GPUs", 30)
    assert not listed("pods", installation.ray_namespace, f"raytide.io/training-job={SEED}")


def test_deleted_jobs_leave_nothing(installation):
    kubectl(
        "delete", "tj", JOB, SEED, "-n", installation.ray_namespace, f"--timeout={within(60)}", deadline_s=70,
    )  # fmt: skip

    def check():
        left = list(everything(installation.ray_namespace, "trainingjobs", "pods", "services", "configmaps"))
        return not left, left

    eventually(check, "nothing is left of the TrainingJobs", 60)
