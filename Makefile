# Every target sets up what it needs by itself: `.venv` here, downloads in the user's cache folder, nothing else.
# `make help` lists them.

PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/pytest
# make test waits for processes and sockets part of its time: six share it on two cores. make kube-suite waits more; each of its
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
# Programs of the tests, and benches, import the support of the tests.
TEST_PATH := tests:tools/builders:tools/checks
# Levels that wait for real processes: up to three tests that failed are run once more, alone, and are reported.
RERUN = -o cache_dir=.pytest_cache/$@ --rerun-failed 3
# kubectl, helm and kwok that `make tools` built count as installed; those on PATH come first.
BUILT_TOOLS := $(shell cat "$${XDG_CACHE_HOME:-$$HOME/.cache}/raytide/tools/current" 2>/dev/null)
# Without bytecode on disk each of the hundreds of operators that tests start compiles all of its modules again.
unexport PYTHONDONTWRITEBYTECODE
# uv trusts what the system trusts, as pip and git do: a proxy may have certificates of its own.
export UV_SYSTEM_CERTS ?= 1
export PATH := $(PATH)$(if $(BUILT_TOOLS),:$(BUILT_TOOLS))
# Each figure of make bench, with its file in bench/, which gets the figure as its argument.
BENCHES := P1=schedule P1B=schedule P1C=schedule P2=schedule GANGS=schedule GROWTH=schedule \
  P3=pod_creation P5=pod_creation P12=pod_creation UI=pod_creation KUBERAY=beside_kuberay NODE=real_node \
  P6=reconcile_latency P6K=reconcile_latency REACTION=reconcile_latency \
  P7=operator_resources P7F=operator_resources P8=operator_resources TAKEOVER=leader_election \
  P7S=autoscaler_sidecar P9=autoscaler_sidecar P9B=autoscaler_sidecar S1=autoscaler_sidecar \
  P10=sharing_pass P10L=sharing_pass P10GROWTH=sharing_pass VICTIMS=preemption_victims \
  PUBLISHED=training_simulation TRAINING_DAY=training_simulation SB1=command_latency WHY=command_latency
FIGURES := $(foreach bench,$(BENCHES),$(firstword $(subst =, ,$(bench))))
ON_CONTROL_PLANE := P3 P5 P6K P12 UI KUBERAY
# A level that lacks a program says so and is green, but not where nothing may be missing: .ci/run sets RAYTIDE_ALL_RUN.
comma := ,
not_run = { echo "$(1): not run ($(2))"; test -z "$$RAYTIDE_ALL_RUN"; }
E2E_PATH := tools/builders:tools/node:tools/kind
ASKED := $(shell echo $(P) | tr a-z A-Z)

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-elastic test test-slow test-ray test-ui lint verify kube-suite acceptance golden e2e simulation properties mutate oracle bench chart image security release site pictures generate tools presubmit nightly clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  \033[36mmake %-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: # .venv from the locks; under a second when nothing changed
	@python=$$(sh tools/builders/python.sh "$(PYTHON)") && "$$python" tools/builders/setup.py $(if $(filter file,$(origin PYTHON)),,--asked-for)

demo: setup ## a RayCluster with real Ray on this machine (KEEP=1 leaves it running, DOWN=1 ends it, ISOLATION=plain|ns)
	@$(BIN)/python tools/demos/demo.py $(if $(filter-out 0 no,$(DOWN)),--down,$(if $(filter-out 0 no,$(KEEP)),--keep) $(if $(ISOLATION),--isolation $(ISOLATION)))

demo-elastic: setup ## three training jobs with real PaddlePaddle share a sandbox (ISOLATION=plain|ns)
	@PYTHONPATH=tools/builders $(BIN)/python tools/demos/demo_elastic.py $(if $(ISOLATION),--isolation $(ISOLATION))

SELF_CONTAINED := not ray and not redis and not paddle and not kubectl and not helm and not kube and not soak
test: setup ## unit, integration and simulation tests; no root, no kubectl, no Docker (WORKERS=1: in order)
	@$(PYTEST) $(SHARED) -m "not slow and $(SELF_CONTAINED)" --at-least 9800

# Only files with such tests are collected: two processes would spend twenty seconds on the others, twice.
SLOW = $(shell grep -rl --include='test_*.py' 'mark\.slow' tests/unit tests/integration tests/simulation)
IN_VIRTUAL_TIME = $(shell grep -rl --include='test_*.py' 'mark\.looptime' tests/unit tests/integration tests/simulation)
test-slow: setup ## tests that take seconds of a processor; those in virtual time with an uptime of 10 s and of 10 days
	@$(PYTEST) $(if $(filter-out 0 1,$(WORKERS)),--numprocesses 2 --dist loadfile) -m "slow and $(SELF_CONTAINED)" --at-least 400 $(SLOW)
	@$(foreach start,10 864000,$(PYTEST) $(SHARED) -m "looptime and not kube" --at-least 1000 --clock-start $(start) --histories 8 $(IN_VIRTUAL_TIME) &&) true

test-ray: setup ## real Ray, kubectl where it is installed, real PaddlePaddle, older versions of Ray (RAY_WORKERS=n)
	@if command -v kubectl >/dev/null; then $(PYTEST) $(RAY_SHARED) $(RERUN) -m "(ray or kubectl) and not kube" --timeout 300 --at-least 68 tests/integration; \
	else $(PYTEST) $(RAY_SHARED) $(RERUN) -m "ray and not kube" --timeout 300 --at-least 22 tests/integration && $(call not_run,kubectl tests,no kubectl on PATH); fi
	@redis=$$($(BIN)/python tools/builders/redis_server.py $${RAYTIDE_ALL_RUN:+--require}) && if [ -n "$$redis" ]; then RAYTIDE_TEST_REDIS=$$redis $(PYTEST) -m "redis and not kube" --timeout 600 --at-least 5 tests/integration; fi
	@paddle=$$($(BIN)/python tools/builders/paddle_env.py $${RAYTIDE_ALL_RUN:+--require}) && if [ -n "$$paddle" ]; then $(PYTEST) $(RERUN) -m "paddle and not kube" --timeout 300 --at-least 2 tests/integration; fi
	@PYTHONPATH=tools/builders $(BIN)/python tools/checks/ray_versions.py

test-ui: setup ## the page of raytide ui in Chromium: the one on PATH, or Debian's in the cache folder
	@chromium=$$($(BIN)/python tools/builders/browser.py $${RAYTIDE_ALL_RUN:+--require}) && if [ -n "$$chromium" ]; then $(PYTEST) $(RERUN) -m browser --at-least 40 tests/ui; fi

lint: setup ## ruff, formatting, types, import rules and circular imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports
	@$(BIN)/python tools/checks/import_graph.py

verify: setup ## generated files are up to date, links and cited rules resolve
	@$(BIN)/python tools/generators/crds.py --check
	@$(BIN)/python tools/generators/gcs.py --check
	@$(BIN)/python tools/generators/chart.py --check
	@$(BIN)/python tools/generators/training_sample.py --check
	@$(BIN)/python tools/checks/links.py
	@$(BIN)/python tools/checks/rules.py --check

kube-suite: setup tools ## the integration suite on real control planes (KUBE_WORKERS=3)
	@$(PYTEST) $(KUBE_SHARED) $(RERUN) -m kube --timeout 300 --at-least 570 tests/integration

acceptance: setup tools ## acceptance scenarios on real control planes (GRACE=60: trainers of S25 terminate slowly)
	@$(PYTEST) $(SCENARIOS_SHARED) $(RERUN) -m kube --timeout 300 --at-least 30 $(if $(GRACE),--grace $(GRACE)) tests/acceptance

golden: setup tools ## 40 RayClusters on a real control plane, beside KubeRay's (SPECS=dir REFERENCE=dir OUT=dir MODE=ray)
	@PYTHONPATH=$(TEST_PATH) $(BIN)/python -m golden.compare $(if $(SPECS),--specs "$(SPECS)") $(if $(REFERENCE),--reference "$(REFERENCE)") $(if $(OUT),--out "$(OUT)") $(if $(MODE),--autoscaler-mode "$(MODE)")

# Which machine allows it is looked at first: the control plane, the image and the programs take minutes to build, and tests have limits.
ON ?= processes
E2E := PYTHONPATH=$(E2E_PATH):tools/checks $(BIN)/python tools/checks/e2e.py
NODE_CHECK := PYTHONPATH=$(E2E_PATH) $(BIN)/python tools/node/node_check.py
NODE_PROGRAMS := $(BIN)/python tools/builders/node_programs.py
KIND_CHECK := PYTHONPATH=$(E2E_PATH) $(BIN)/python tools/kind/kind_check.py
KIND_PROGRAMS := $(BIN)/python tools/builders/kind_programs.py
E2E_ON_processes = $(MAKE) -s tools && $(E2E) $(ARGS)
E2E_ON_node = if $(NODE_CHECK) --lacks; then $(MAKE) -s tools image && $(NODE_PROGRAMS) && \
	$(PYTEST) $(RERUN) -m node --timeout 300 --at-least 8 tests/node && $(E2E) --node $(ARGS); \
	else $(call not_run,e2e on a node,make e2e CHECK=1 shows all requirements); fi
# DOCKER=installed takes no other daemon than that of the machine, and is green where there is none.
E2E_ON_kind = $(KIND_CHECK) $(if $(filter installed,$(DOCKER)),--installed); case $$? in \
	0) $(BIN)/python tools/builders/kube_tools.py && $(MAKE) -s image && $(E2E) --kind $(ARGS) ;; \
	3) $(MAKE) -s tools image && $(NODE_PROGRAMS) && $(KIND_PROGRAMS) && \
	$(PYTEST) $(RERUN) -m kind --timeout 600 --at-least 3 tests/kind && $(E2E) --kind $(ARGS) ;; \
	*) $(if $(filter installed,$(DOCKER)),true,$(call not_run,e2e on kind,make e2e CHECK=1 shows all requirements)) ;; esac
e2e: setup ## the chart, real Ray, upgrade, uninstall (ON=node|kind: on containers; CHECK=1: what is missing; ARGS=--keep, DOWN=1)
	@$(if $(CHECK),$(NODE_CHECK),$(if $(DOWN),PYTHONPATH=$(E2E_PATH) $(BIN)/python tools/node/node.py,$(or $(E2E_ON_$(ON)),{ echo "say where: make e2e ON=node or ON=kind"; exit 2; })))

simulation: setup ## random histories, faults at points of each scenario, days in a cloud (SEED=n POINTS=all HISTORIES=n DAYS=n)
	@PYTHONPATH=$(TEST_PATH) $(BIN)/python -m simulation.simulate $(if $(HISTORIES),--histories $(HISTORIES)) $(if $(LAUNCHES),--launches $(LAUNCHES)) $(if $(JOB_HISTORIES),--job-histories $(JOB_HISTORIES)) $(if $(FIRST),--first $(FIRST)) $(if $(SCENARIOS),--scenarios $(SCENARIOS)) $(if $(POINTS),--points $(POINTS)) $(if $(SEED),--seed $(SEED)) $(if $(POINT),--point $(POINT))
	@$(if $(SCENARIOS)$(POINT),,$(PYTEST) tests/simulation/test_cloud_days.py --at-least 1 --cloud-days $(or $(DAYS),200) $(if $(SEED),--cloud-seed $(SEED)))

properties: setup ## 10,000 random worlds for each property of plans, objects drawn from the CRDs, texts (EXAMPLES=n INPUTS=n)
	@RAYTIDE_EXAMPLES=$(or $(EXAMPLES),10000) $(PYTEST) $(SHARED) --at-least 55 tests/unit/autoscaler/scheduling/test_properties.py tests/unit/autoscaler/scheduling/test_fallback_properties.py tests/unit/fairshare/algorithm/test_properties.py tests/unit/fairshare/algorithm/test_tenant_properties.py tests/unit/bench/test_timed_model.py
	@$(PYTEST) --at-least 20 --specs-batches 10 tests/simulation/test_generated_specs.py
	@$(PYTEST) $(SHARED) --at-least 6 --submissions 50 tests/simulation/test_predicted_effects.py
	@$(BIN)/python tests/fuzz.py $(if $(INPUTS),--inputs $(INPUTS)) $(if $(SEED),--seed $(SEED))

mutate: setup ## deliberate mutations must each turn the simulation or a test of the bounds on inputs red
	@PYTHONPATH=$(TEST_PATH) $(BIN)/python -m simulation.mutate

oracle: setup ## our scheduler against Ray's own on random questions, all fields (SEED=n CASES=n)
	@PYTHONPATH=$(TEST_PATH) $(BIN)/python -m oracle.compare $(if $(SEED),--seed $(SEED)) $(if $(CASES),--cases $(CASES))

bench: setup ## one figure: make bench P=P6; without P the list (KUBERAY=path for those beside KubeRay)
	@test -n "$(filter $(ASKED),$(FIGURES))" || { echo "say which: make bench P=P6; there are: $(FIGURES)"; exit 2; }
	@$(if $(filter $(ASKED),$(ON_CONTROL_PLANE)),$(MAKE) -s tools)
	@$(if $(filter $(ASKED),NODE),$(MAKE) -s tools image && $(NODE_PROGRAMS))
	@PYTHONPATH=$(TEST_PATH) $(BIN)/python bench/$(patsubst $(ASKED)=%,%,$(filter $(ASKED)=%,$(BENCHES))).py $(ASKED)

chart: setup ## the chart with helm where it is installed, its alerts and dashboards with promtool
	@if $(BIN)/python tools/builders/kube_tools.py --find helm >/dev/null 2>&1; then $(PYTEST) -m "helm" --at-least 98 tests/unit/chart tests/integration/test_helm.py; else $(call not_run,chart with helm,no helm on PATH$(comma) and none from make tools); fi
	@PYTHONPATH=tools/builders $(BIN)/python tools/checks/monitoring.py $${RAYTIDE_ALL_RUN:+--require}

image: setup ## build and check the container image; needs no registry on Debian (BASE=pinned|debian BUILDER=name)
	@PYTHONPATH=tools/checks $(BIN)/python tools/builders/image.py $(if $(BASE),--base $(BASE)) $(if $(BUILDER),--builder $(BUILDER))

security: setup ## scanners over workflows, chart, Dockerfile and texts that look like secrets (PIP_AUDIT=1: advisories)
	@PYTHONPATH=tools/builders $(BIN)/python tools/checks/security.py

release: setup ## what a release publishes but the image, in dist/: wheel, sdist, chart, SBOMs (TAG=v0.1.0 checks the tag)
	@PYTHONPATH=tools/builders $(BIN)/python tools/builders/release.py $(if $(TAG),--tag "$(TAG)")

site: setup ## the documentation site, in dist/site (SERVE=1 serves it on 127.0.0.1:8000)
	@PYTHONPATH=tools/builders $(BIN)/python tools/builders/docs_site.py $(if $(filter-out 0 no,$(SERVE)),--serve)

pictures: setup ## the pictures of the page of raytide ui in docs/figures (OUT=folder)
	@PYTHONPATH=tools/builders $(BIN)/python tools/demos/ui_pictures.py $(if $(OUT),--out "$(OUT)")

generate: setup ## CRDs, chart, gcs_pb2 and samples from their sources (LOCKS=1: the dependency locks instead)
	@$(if $(LOCKS),$(BIN)/python tools/generators/locks.py,$(foreach name,crds gcs chart training_sample,$(BIN)/python tools/generators/$(name).py &&) true)

tools: setup ## build the control plane, kubectl, helm and kwok with Go where they are missing (ALL=1: nodes and kind, too)
	@$(BIN)/python tools/builders/control_plane.py
	@$(BIN)/python tools/builders/kube_tools.py
	@$(if $(ALL),if $(NODE_CHECK) --lacks >/dev/null; then $(NODE_PROGRAMS); fi; $(KIND_CHECK) >/dev/null; if test $$? = 3; then $(KIND_PROGRAMS); fi)

presubmit: ## every level, for a change that is finished; .ci/run is what CI runs for each commit
	@bash .ci/presubmit

# What takes too long for each commit. The seed is in the output: SEED=n repeats a night.
nightly: export RAYTIDE_SEED := $(if $(SEED),$(SEED),$(shell date +%Y%m%d))
nightly: setup ## what CI runs each night: all histories, faults, worlds and days, with a seed of that day (SEED=n)
	@echo "=== seed $(RAYTIDE_SEED)"
	@$(MAKE) -s simulation SEED=$(RAYTIDE_SEED) FIRST=$(RAYTIDE_SEED) POINTS=all
	@$(MAKE) -s properties WORKERS=2 SEED=$(RAYTIDE_SEED)
	@$(MAKE) -s oracle SEED=$(RAYTIDE_SEED)

clean: ## remove .venv and caches of this folder
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
