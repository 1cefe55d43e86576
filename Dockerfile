# Serves the runs below /run-folder, as a user without privileges. See docs/guides/serve.md.
FROM python:3.12-slim

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY heedful ./heedful
RUN pip install --no-cache-dir '.[serve]' && rm -rf /src/*

RUN useradd --create-home --uid 10001 heedful && install -d -o heedful /tmp/heedful-cache
USER heedful
WORKDIR /home/heedful
# Compiled programs; mount a volume here to start in seconds the next time.
ENV HEEDFUL_CACHE=/tmp/heedful-cache

EXPOSE 8000
# Every run below /run-folder; other folders, such as those of heedful tune, have no config.json.
ENTRYPOINT ["sh", "-c", "for config in /run-folder/*/config.json; do set -- \"$@\" \"${config%/*}\"; done; exec heedful serve --host 0.0.0.0 --allowed-host '*' \"$@\"", "serve"]
