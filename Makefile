# Every target sets up what it needs by itself: `.venv` here, downloads in the user's cache folder, nothing else.
# `make help` lists them.

PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/pytest
# make test waits for processes and sockets part of its time: six share it on two cores. make test-kube waits more; each of its
# processes has control planes of its own, which need 2 GiB, and takes one file after the other.
WORKERS ?= 6
SHARED := $(if $(filter-out 0 1,$(WORKERS)),--numprocesses $(WORKERS) --dist worksteal)
KUBE_WORKERS ?= 3
KUBE_SHARED := $(if $(filter-out 0 1,$(KUBE_WORKERS)),--numprocesses $(KUBE_WORKERS) --dist loadfile --no-loadscope-reorder)
# The acceptance scenarios have bars in seconds: one of two processes runs those that take most of a processor, as
# tests/acceptance/conftest.py says.
SCENARIOS_SHARED := $(if $(filter-out 0 1,$(KUBE_WORKERS)),--numprocesses 2)
# Real Ray waits too: two processes, each with one file after the other, because the tests of a file share a cluster.
RAY_WORKERS ?= 2
RAY_SHARED := $(if $(filter-out 0 1,$(RAY_WORKERS)),--numprocesses $(RAY_WORKERS) --dist loadfile)
# Levels that wait for real processes: up to three tests that failed are run once more, alone, and are reported.
RERUN = -o cache_dir=.pytest_cache/$@ --rerun-failed 3
# kubectl, helm and kwok that `make tools` built count as installed; those on PATH come first.
BUILT_TOOLS := $(shell cat "$${XDG_CACHE_HOME:-$$HOME/.cache}/raytide/tools/current" 2>/dev/null)
# Without bytecode on disk each of the hundreds of operators that tests start compiles all of its modules again.
unexport PYTHONDONTWRITEBYTECODE
# uv trusts what the system trusts, as pip and git do: a proxy may have certificates of its own.
export UV_SYSTEM_CERTS ?= 1
export PATH := $(PATH)$(if $(BUILT_TOOLS),:$(BUILT_TOOLS))
# Each figure of make bench, with its file in bench/.
BENCHES := SB1=sandbox_throughput P1=schedule_half_free_nodes P1B=schedule_uneven_nodes P1C=schedule_large_gangs \
  P2=schedule_full_nodes GANGS=schedule_gangs GROWTH=schedule_growth P3=pod_creation_rate P5=first_pod_fairness \
  P6=reconcile_latency P6K=reconcile_latency_kube P7=operator_memory P7F=operator_memory_hostile P8=requests_per_pod \
  P12=cpu_per_pod TAKEOVER=takeover P7S=sidecar_memory P9=sidecar_cpu P9B=sidecar_decision_cpu S1=demand_burst \
  P10=sharing_pass_time P10L=sharing_pass_time_large P10GROWTH=sharing_pass_growth PUBLISHED=published TRAINING_DAY=training_day VICTIMS=trainers_given_up \
  REACTION=reaction WHY=why_command UI=ui_following NODE=real_node KUBERAY=beside_kuberay
FIGURES := $(foreach bench,$(BENCHES),$(firstword $(subst =, ,$(bench))))
ON_CONTROL_PLANE := P3 P5 P6K P12 UI KUBERAY
# A level that lacks a program says so and is green, but not where nothing may be missing: .ci/run sets RAYTIDE_ALL_RUN.
comma := ,
not_run = { echo "$(1): not run ($(2))"; test -z "$$RAYTIDE_ALL_RUN"; }
E2E_PATH := tools/builders:tools/node:tools/kind
ASKED := $(shell echo $(P) | tr a-z A-Z)

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-elastic demo-down test test-slow test-uptime lint test-ray test-paddle test-ui pictures dashboard-pictures test-kube kube-suite acceptance bench mutate properties simulation cloud-days oracle ways golden crds gcs ray-versions chart e2e e2e-node e2e-kind node-programs node-check node-clean samples dashboards reasons man locks verify presubmit nightly control-plane tools image security advisories checks sbom release site fuzz clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  \033[36mmake %-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: # .venv from the locks; under a second when nothing changed
	@python=$$(sh tools/builders/python.sh "$(PYTHON)") && "$$python" tools/builders/setup.py $(if $(filter file,$(origin PYTHON)),,--asked-for)

demo: setup ## a RayCluster with real Ray on this machine, start to end (KEEP=1 leaves it running, ISOLATION=plain|ns)
	@$(BIN)/python tools/demos/demo.py $(if $(filter-out 0 no,$(KEEP)),--keep) $(if $(ISOLATION),--isolation $(ISOLATION))

demo-elastic: setup ## three training jobs with real PaddlePaddle share a sandbox of 24 CPUs, start to end (OUT=file.svg, ISOLATION=plain|ns)
	@PYTHONPATH=tools/builders $(BIN)/python tools/demos/demo_elastic.py $(if $(OUT),--out "$(OUT)") $(if $(ISOLATION),--isolation $(ISOLATION))

demo-down: setup ## end what make demo KEEP=1 left running
	@$(BIN)/python tools/demos/demo.py --down

SELF_CONTAINED := not ray and not paddle and not kubectl and not helm and not kube and not soak
test: setup ## unit, integration and sampled simulation tests; no root, no kubectl, no Docker (in six processes; WORKERS=n, 1 for one)
	@$(PYTEST) $(SHARED) -m "not slow and $(SELF_CONTAINED)" --at-least 10400

# As below: only files with such tests are collected.
SLOW = $(shell grep -rl --include='test_*.py' 'mark\.slow' tests/unit tests/integration tests/simulation)
test-slow: setup ## tests that take seconds of a processor each: hostile objects, faults and clocks of each scenario, installation (two processes)
	@$(PYTEST) $(if $(filter-out 0 1,$(WORKERS)),--numprocesses 2 --dist loadfile) -m "slow and $(SELF_CONTAINED)" --at-least 440 $(SLOW)

# Only files with such tests are collected: two processes would spend twenty seconds on the others, twice.
IN_VIRTUAL_TIME = $(shell grep -rl --include='test_*.py' 'mark\.looptime' tests/unit tests/integration tests/simulation)
test-uptime: setup ## the tests in virtual time as on a machine that started 10 s ago, and 10 days ago: no result may depend on it
	@$(foreach start,10 864000,$(PYTEST) $(SHARED) -m "looptime and not kube" --at-least 1000 --clock-start $(start) --histories 8 $(IN_VIRTUAL_TIME) &&) true

lint: setup ## ruff, formatting, types, import rules and circular imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports
	@$(BIN)/python tools/checks/import_graph.py

test-ray: setup ## tests with real Ray and with kubectl where it is installed (in two processes, RAY_WORKERS=n)
	@if command -v kubectl >/dev/null; then $(PYTEST) $(RAY_SHARED) $(RERUN) -m "(ray or kubectl) and not kube" --timeout 300 --at-least 68 tests/integration; \
	else $(PYTEST) $(RAY_SHARED) $(RERUN) -m "ray and not kube" --timeout 300 --at-least 22 tests/integration && $(call not_run,kubectl tests,no kubectl on PATH); fi

test-paddle: setup ## an elastic training with real PaddlePaddle on the sandbox (Python 3.11 on Linux x86-64; downloads it once)
	@paddle=$$($(BIN)/python tools/builders/paddle_env.py $${RAYTIDE_ALL_RUN:+--require}) && if [ -n "$$paddle" ]; then $(PYTEST) $(RERUN) -m "paddle and not kube" --timeout 300 --at-least 2 tests/integration; fi

test-ui: setup ## the page of raytide ui in Chromium: the one on PATH, or Debian's, unpacked in the cache folder (downloads it once)
	@chromium=$$($(BIN)/python tools/builders/browser.py $${RAYTIDE_ALL_RUN:+--require}) && if [ -n "$$chromium" ]; then $(PYTEST) $(RERUN) -m browser --at-least 40 tests/ui; fi

pictures: setup ## the pictures of the page of raytide ui in docs/figures, from a run of some minutes on a sandbox (OUT=folder)
	@PYTHONPATH=tools/builders $(BIN)/python tools/demos/ui_pictures.py $(if $(OUT),--out "$(OUT)")

dashboard-pictures: setup ## the pictures of the Grafana dashboards in docs/figures, from a run of some minutes with real Ray and Prometheus (OUT=folder)
	@PYTHONPATH=tools/builders $(BIN)/python tools/demos/dashboard_pictures.py $(if $(OUT),--out "$(OUT)")

ray-versions: setup ## the sidecar's questions to the GCS, with two older versions of Ray (downloads them once)
	@PYTHONPATH=tools/builders $(BIN)/python tools/checks/ray_versions.py

test-kube: kube-suite acceptance ## both of the next two

kube-suite: setup control-plane tools ## the integration suite and the probe on real control planes (in three processes, KUBE_WORKERS=n)
	@$(PYTEST) $(KUBE_SHARED) $(RERUN) -m kube --timeout 300 --at-least 570 tests/integration

acceptance: setup control-plane tools ## acceptance scenarios on real control planes (in two processes, because they have bars in seconds; GRACE=60 lets trainers of S25 take a minute to terminate)
	@$(PYTEST) $(SCENARIOS_SHARED) $(RERUN) -m kube --timeout 300 --at-least 27 $(if $(GRACE),--grace $(GRACE)) tests/acceptance

simulation: setup ## 1,000 random histories, 60 of jobs, 100 launches under faults, faults at a sample of points of each scenario (SEED=n, POINTS=all)
	@$(BIN)/python tools/checks/simulate.py $(if $(HISTORIES),--histories $(HISTORIES)) $(if $(LAUNCHES),--launches $(LAUNCHES)) $(if $(JOB_HISTORIES),--job-histories $(JOB_HISTORIES)) $(if $(FIRST),--first $(FIRST)) $(if $(SCENARIOS),--scenarios $(SCENARIOS)) $(if $(POINTS),--points $(POINTS)) $(if $(SEED),--seed $(SEED)) $(if $(POINT),--point $(POINT))

cloud-days: setup ## 200 random days in a cloud of operator and autoscaler (DAYS=n SEED=n; make test lives three)
	@$(PYTEST) tests/simulation/test_cloud_days.py --at-least 1 --cloud-days $(if $(DAYS),$(DAYS),200) $(if $(SEED),--cloud-seed $(SEED))

properties: setup ## what holds of every plan of the fair sharing, of 10,000 random clusters each (EXAMPLES=n), of 500 over hours, of 520 objects drawn from the CRDs, and of 50 predicted effects of a submission
	@RAYTIDE_EXAMPLES=$(if $(EXAMPLES),$(EXAMPLES),10000) $(PYTEST) $(SHARED) --at-least 38 tests/unit/fairshare/algorithm/test_properties.py tests/unit/fairshare/algorithm/test_tenant_properties.py tests/unit/bench/test_timed_model.py
	@$(PYTEST) --at-least 20 --specs-batches 10 tests/simulation/test_generated_specs.py
	@$(PYTEST) $(SHARED) --at-least 6 --submissions 50 tests/simulation/test_predicted_effects.py

mutate: setup ## eighteen deliberate mutations must each turn the simulation red
	@$(BIN)/python tools/checks/mutate.py

golden: setup control-plane tools ## 40 RayClusters on a real control plane, beside what KubeRay made of them (SPECS=dir REFERENCE=dir OUT=dir MODE=ray)
	@PYTHONPATH=tests:tools/builders $(BIN)/python tools/checks/golden.py $(if $(SPECS),--specs "$(SPECS)") $(if $(REFERENCE),--reference "$(REFERENCE)") $(if $(OUT),--out "$(OUT)") $(if $(MODE),--autoscaler-mode "$(MODE)")

bench: setup ## one figure: make bench P=P6 (SB1, P1, P1B, P1C, P2, GANGS, GROWTH, P6, P7, P7F, P8, TAKEOVER, P10, P10L, P10GROWTH, PUBLISHED, TRAINING_DAY, VICTIMS, REACTION, WHY; on a real control plane P3, P5, P6K, P12, UI; beside KubeRay KUBERAY, and on a real node NODE, with KUBERAY=path)
	@test -n "$(filter $(ASKED),$(FIGURES))" || { echo "say which: make bench P=P6; there are: $(FIGURES)"; exit 2; }
	@$(if $(filter $(ASKED),$(ON_CONTROL_PLANE)),$(MAKE) -s control-plane)
	@$(if $(filter $(ASKED),NODE),$(MAKE) -s control-plane tools image && $(NODE_PROGRAMS))
	@PYTHONPATH=tests $(BIN)/python bench/$(patsubst $(ASKED)=%,%,$(filter $(ASKED)=%,$(BENCHES))).py

oracle: setup ## our scheduler against Ray's own on random questions, all fields (SEED=n CASES=n)
	@$(BIN)/python tools/checks/oracle.py $(if $(SEED),--seed $(SEED)) $(if $(CASES),--cases $(CASES))

ways: setup ## files that replicas, a Ray demand and a TrainingJob's size pass through from reading to the API call, in a real pass
	@$(BIN)/python tools/checks/ways.py

crds: setup ## write the CRDs from tools/generators/crds.py
	@$(BIN)/python tools/generators/crds.py

gcs: setup ## write the Python of gcs.proto, what the sidecar and Ray's GCS say to each other
	@$(BIN)/python tools/generators/gcs.py

control-plane: setup ## build etcd, kube-apiserver, controller-manager and scheduler with Go, or check KUBEBUILDER_ASSETS
	@$(BIN)/python tools/builders/control_plane.py

tools: setup ## build kubectl, helm and kwok with Go where they are missing
	@$(BIN)/python tools/builders/kube_tools.py

image: setup ## build and check the container image with Docker, Podman or buildah; needs no registry on Debian (BASE=pinned|debian BUILDER=name)
	@PYTHONPATH=tools/checks $(BIN)/python tools/builders/image.py $(if $(BASE),--base $(BASE)) $(if $(BUILDER),--builder $(BUILDER))

security: setup control-plane tools ## scanners over code, chart, image, workflows and dependencies: fails for each finding without a listed reason (PIP_AUDIT=1)
	@PYTHONPATH=tools/builders:tools/checks $(BIN)/python tools/checks/security.py

advisories: setup ## clone the advisory database of PyPI into the cache folder, with which make security compares the locks
	@PYTHONPATH=tools/builders:tools/checks $(BIN)/python tools/checks/security_advisories.py

fuzz: setup ## 1,000,000 random quantities, patches, RayClusters and TrainingJobs (INPUTS=n SEED=n)
	@$(BIN)/python tools/checks/fuzz.py $(if $(INPUTS),--inputs $(INPUTS)) $(if $(SEED),--seed $(SEED))

sbom: setup ## SBOMs of package and image (CycloneDX), in dist/
	@PYTHONPATH=tools/builders $(BIN)/python tools/builders/sbom.py

release: setup ## what a release publishes but the image, in dist/: wheel, sdist, chart, SBOMs; publishes nothing (TAG=v0.1.0 checks the tag)
	@PYTHONPATH=tools/builders $(BIN)/python tools/builders/release.py $(if $(TAG),--tag "$(TAG)")

site: setup ## the documentation site, in dist/site: all pages, and references written from code (SERVE=1 serves it on 127.0.0.1:8000)
	@PYTHONPATH=tools/builders:tools/generators $(BIN)/python tools/builders/docs_site.py $(if $(filter-out 0 no,$(SERVE)),--serve)

checks: setup ## write the table of security checks in SECURITY.md
	@$(BIN)/python tools/generators/security.py

chart: setup ## write what the chart repeats from elsewhere, and check the chart with helm where it is installed and its alerts and dashboards with promtool
	@$(BIN)/python tools/generators/chart.py
	@if $(BIN)/python tools/builders/kube_tools.py --find helm >/dev/null 2>&1; then $(PYTEST) -m "helm" --at-least 98 tests/unit/chart tests/integration/test_helm.py; else $(call not_run,chart with helm,no helm on PATH$(comma) and none from make tools); fi
	@PYTHONPATH=tools/builders $(BIN)/python tools/checks/monitoring.py $${RAYTIDE_ALL_RUN:+--require}

e2e: setup control-plane tools ## the chart installed by helm on a real control plane, real Ray, uninstall (ARGS=--keep leaves it)
	@PYTHONPATH=$(E2E_PATH) $(BIN)/python tools/checks/e2e.py $(ARGS)

# Which machine allows it is looked at first: the control plane, the image and the programs take minutes to build, and tests have limits.
NODE_PROGRAMS := $(BIN)/python tools/builders/node_programs.py
KIND_PROGRAMS := $(BIN)/python tools/builders/kind_programs.py
e2e-node: setup ## the same suite on containerd and a kubelet in namespaces of this machine, with the image of the Dockerfile (root; Debian)
	@if PYTHONPATH=$(E2E_PATH) $(BIN)/python tools/node/node_check.py --lacks; then \
	$(MAKE) -s control-plane tools image && $(NODE_PROGRAMS) && $(PYTEST) $(RERUN) -m node --timeout 300 --at-least 8 tests/node && \
	PYTHONPATH=$(E2E_PATH) $(BIN)/python tools/checks/e2e.py --node $(ARGS); \
	else $(call not_run,e2e-node,make node-check shows all requirements); fi

node-check: setup ## what this machine allows the node of make e2e-node, a line each, and what is missing
	@PYTHONPATH=$(E2E_PATH) $(BIN)/python tools/node/node_check.py

node-clean: setup ## end what make e2e-node or e2e-kind ARGS=--keep left running, or remove what a killed run left
	@PYTHONPATH=$(E2E_PATH) $(BIN)/python tools/node/node.py

# DOCKER=installed takes no other daemon than that of the machine, and is green where there is none.
KIND_CHECK := PYTHONPATH=$(E2E_PATH) $(BIN)/python tools/kind/kind_check.py
KIND_SUITE := PYTHONPATH=$(E2E_PATH) $(BIN)/python tools/checks/e2e.py --kind
e2e-kind: setup ## the same suite on kind with three nodes: with the Docker and kind on PATH, else with ones of its own (root; Debian)
	@$(KIND_CHECK) $(if $(filter installed,$(DOCKER)),--installed); case $$? in \
	0) $(MAKE) -s tools image && $(KIND_SUITE) $(ARGS) ;; \
	3) $(MAKE) -s control-plane tools image && $(NODE_PROGRAMS) && $(KIND_PROGRAMS) && $(PYTEST) $(RERUN) -m kind --timeout 600 --at-least 3 tests/kind && $(KIND_SUITE) $(ARGS) ;; \
	*) $(if $(filter installed,$(DOCKER)),true,$(call not_run,e2e-kind,make node-check shows all requirements)) ;; esac

node-programs: setup control-plane tools ## build what make e2e-node and make e2e-kind would build with Go, so that they start sooner
	@if PYTHONPATH=$(E2E_PATH) $(BIN)/python tools/node/node_check.py --lacks >/dev/null; then $(NODE_PROGRAMS); fi
	@$(KIND_CHECK) >/dev/null; if test $$? = 3; then $(KIND_PROGRAMS); fi

samples: setup ## write samples/trainingjob.yaml from its programs in samples/training
	@$(BIN)/python tools/generators/training_sample.py

dashboards: setup ## write the chart's dashboards from tools/generators/dashboards.py
	@$(BIN)/python tools/generators/dashboards.py

reasons: setup ## write docs/conditions.md and docs/events.md from the reasons and messages in the code
	@$(BIN)/python tools/generators/reasons.py

man: setup ## write the man pages in operator/man and sandbox/man from the commands
	@$(BIN)/python tools/generators/man_pages.py

locks: setup # resolve requirements/*.txt again from pyproject.toml
	@$(BIN)/python tools/generators/locks.py

verify: setup ## generated files are up to date, links in the documentation resolve, and so do the rule ids that code and tests cite
	@$(BIN)/python tools/generators/crds.py --check
	@$(BIN)/python tools/generators/gcs.py --check
	@$(BIN)/python tools/generators/chart.py --check
	@$(BIN)/python tools/generators/training_sample.py --check
	@$(BIN)/python tools/generators/dashboards.py --check
	@$(BIN)/python tools/generators/security.py --check
	@$(BIN)/python tools/generators/reasons.py --check
	@$(BIN)/python tools/generators/man_pages.py --check
	@$(BIN)/python tools/checks/links.py
	@$(BIN)/python tools/checks/rules.py --check

presubmit: ## every level, for a change that is finished; .ci/run is what CI runs for each commit
	@bash .ci/presubmit

# What takes too long for each commit. The seed is in the output: SEED=n repeats a night.
nightly: export RAYTIDE_SEED := $(if $(SEED),$(SEED),$(shell date +%Y%m%d))
nightly: setup ## what CI runs each night: all histories, faults, worlds and days, with a seed of that day (SEED=n)
	@echo "=== seed $(RAYTIDE_SEED)"
	@$(MAKE) -s simulation SEED=$(RAYTIDE_SEED) FIRST=$(RAYTIDE_SEED)
	@$(MAKE) -s properties WORKERS=2
	@$(MAKE) -s cloud-days SEED=$(RAYTIDE_SEED)
	@$(MAKE) -s fuzz SEED=$(RAYTIDE_SEED)
	@$(MAKE) -s oracle SEED=$(RAYTIDE_SEED)

clean: ## remove .venv and caches of this folder
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
