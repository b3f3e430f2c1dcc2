# A serving image: no torch, no compiler, no shell scripts of ours; a user without rights.
#   docker build -f deploy/docker/serve.Dockerfile -t calibrant-serve .
#   docker run --read-only --tmpfs /tmp -v "$PWD/models:/models:ro" -p 8000:8000 calibrant-serve /models/birds.onnx
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/calibrant \
    && /opt/calibrant/bin/python -m pip install --no-cache-dir '.[cpu]' \
    && /opt/calibrant/bin/python -m pip uninstall --yes pip setuptools

FROM python:3.11-slim-bookworm
RUN useradd --create-home --uid 10001 calibrant
COPY --from=build /opt/calibrant /opt/calibrant
USER 10001
WORKDIR /home/calibrant
ENV PATH=/opt/calibrant/bin:$PATH PYTHONDONTWRITEBYTECODE=1
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=2)"]
# Inside a container the loopback is nobody's: the port is opened by -p alone.
ENTRYPOINT ["calibrant", "serve", "--host", "0.0.0.0"]
