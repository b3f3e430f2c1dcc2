# For KubeRay: Ray's own image with Calibrant in it. The tag must be the rayVersion of the manifests.
#   docker build -f deploy/docker/ray.Dockerfile -t calibrant-ray:0.1.0 .
# and for training, which needs torch:
#   docker build -f deploy/docker/ray.Dockerfile --build-arg EXTRAS=cpu,train,ray -t calibrant-ray-train:0.1.0 .
FROM rayproject/ray:2.60.0-py311-cpu
WORKDIR /tmp/source
COPY --chown=1000:100 . .
ARG EXTRAS=cpu,evaluate,ray
RUN pip install --no-cache-dir ".[${EXTRAS}]"
# Ray's own user; KubeRay starts Ray and has probes of its own.
USER 1000
WORKDIR /home/ray
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s CMD ["ray", "health-check"]
