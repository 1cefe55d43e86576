# Serves the runs below /run-folder, as a user without privileges. See docs/guides/serve.md.
FROM python:3.12-slim

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY heedful ./heedful
RUN pip install --no-cache-dir '.[serve]' && rm -rf /src/*

RUN useradd --create-home --uid 10001 heedful
USER heedful
WORKDIR /home/heedful
# Compiled programs; mount a volume here to start in seconds the next time.
ENV HEEDFUL_CACHE=/tmp/heedful-cache

EXPOSE 8000
ENTRYPOINT ["sh", "-c", "exec heedful serve /run-folder/*/ --host 0.0.0.0 --allowed-host '*' \"$@\"", "serve"]
