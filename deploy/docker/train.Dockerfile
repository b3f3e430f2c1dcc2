# A training image with everything: torch's CUDA build runs on CPUs as well. Images and runs are mounted.
#   docker build -f deploy/docker/train.Dockerfile -t calibrant-train .
#   docker run --gpus all --shm-size 4g -v "$PWD:/home/calibrant/work" calibrant-train train --data images --out runs/first
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/calibrant \
    && /opt/calibrant/bin/python -m pip install --no-cache-dir '.[all]'

FROM python:3.11-slim-bookworm
RUN useradd --create-home --uid 10001 calibrant
COPY --from=build /opt/calibrant /opt/calibrant
USER 10001
WORKDIR /home/calibrant/work
ENV PATH=/opt/calibrant/bin:$PATH PYTHONDONTWRITEBYTECODE=1
HEALTHCHECK --interval=60s --timeout=30s CMD ["calibrant", "--version"]
ENTRYPOINT ["calibrant"]
CMD ["--help"]
