# For KubeRay: Ray's own image with Calibrant in it. The tag must be the rayVersion of the manifests.
#   docker build -f deploy/docker/ray.Dockerfile -t calibrant-ray:0.1.0 .
FROM rayproject/ray:2.60.0-py311-cpu
COPY --chown=ray:users . /tmp/source
RUN pip install --no-cache-dir '/tmp/source[cpu,evaluate,ray]' && rm -rf /tmp/source
