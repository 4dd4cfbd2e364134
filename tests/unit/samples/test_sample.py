"""The sample is current and valid."""

from pathlib import Path

import yaml

import training_sample
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.validation import violations, warnings

ROOT = Path(__file__).parents[3]


def sample():
    return list(yaml.safe_load_all((ROOT / "samples" / "trainingjob.yaml").read_text()))


def test_the_sample_is_generated_from_the_programs_in_its_folder():
    assert (ROOT / "samples" / "trainingjob.yaml").read_text() == training_sample.build_sample()
    _, programs = sample()
    assert programs["data"] == {
        name: (ROOT / "samples" / "training" / name).read_text() for name in ("master.py", "train.py")
    }


def test_it_is_an_elastic_job_with_a_master_and_nothing_wrong():
    job = TrainingJob.parse(sample()[0])
    assert (job.is_elastic, job.is_fault_tolerant, job.has_master) == (True, True, True)
    assert violations(job) == ()
    assert warnings(job) == ()


def test_its_programs_are_mounted_where_they_are_run():
    job, programs = sample()
    spec = job["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    (mount,) = spec["VolumeMounts"]
    assert volumes[mount["name"]]["configMap"]["name"] == programs["metadata"]["name"]
    for line in (spec["trainer"]["entrypoint"], spec["pserver"]["entrypoint"]):
        assert line == f"exec python {mount['mountPath']}/train.py"
    (container,) = spec["master"]["template"]["spec"]["containers"]
    assert f"{mount['mountPath']}/master.py" in container["command"][-1]
