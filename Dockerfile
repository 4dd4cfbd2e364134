# One image for every command of Raytide: `raytide operator` today, more of them later.
#
#   docker build -t raytide:dev .          or make image, which also checks it and needs neither Docker nor a registry
#
# Everything that is installed is pinned: the base image by its digest, packages by hashes. It runs as the user of Ray's
# images, so that the autoscaler may write where Ray's drivers read its messages, and needs no shell, no home directory and
# no writable root. To move to a newer base image, take the digest from
#   docker buildx imagetools inspect python:3.13-slim-bookworm
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim-bookworm@sha256:01f42367a0a94ad4bc17111776fd66e3500c1d87c15bbd6055b7371d39c124fb
# What the first stage starts from: where packages come from another index, an image with an /etc/pip.conf and certificates.
# The result has nothing of it but /opt/raytide.
ARG BUILD_IMAGE=${PYTHON_IMAGE}

# checkov:skip=CKV_DOCKER_7: the version is in the argument
FROM ${BUILD_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_NO_COMPILE=1
WORKDIR /src

# What changes rarely first: the dependencies, and what builds our own wheel.
COPY requirements/image.txt requirements/build.txt requirements/
RUN python -m venv /opt/build \
 && python -m venv --without-pip /opt/raytide \
 && /opt/build/bin/python -m pip install --require-hashes --only-binary :all: -r requirements/build.txt \
 && /opt/build/bin/python -m pip --python /opt/raytide/bin/python install --require-hashes --only-binary :all: -r requirements/image.txt

COPY pyproject.toml README.md LICENSE ./
COPY crds crds
COPY operator/src operator/src
# Bytecode is written here, because a read-only root takes none later; it is not compared with the time of its source.
RUN /opt/build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && /opt/build/bin/python -m pip --python /opt/raytide/bin/python install --no-deps --no-index dist/*.whl \
 && /opt/raytide/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/raytide/lib


FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="raytide" \
      org.opencontainers.image.description="Kubernetes operator for Ray clusters" \
      org.opencontainers.image.licenses="Apache-2.0"
# No file in the image may raise the privileges of a process, and there is no shell: this one has been read already.
RUN find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
 && rm -f /usr/bin/bash /usr/bin/dash /usr/bin/rbash /usr/bin/sh /bin/bash /bin/dash /bin/rbash /bin/sh
COPY --from=build /opt/raytide /opt/raytide
ENV PATH=/opt/raytide/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /
USER 1000:100
# checkov:skip=CKV_DOCKER_2: the kubelet asks for health, as the Deployment says
ENTRYPOINT ["raytide"]
CMD ["operator"]
