# A depot. It writes no file: its audit log is the standard error stream.
FROM python:3.11-slim
COPY . /src
RUN pip install --no-cache-dir /src && rm -rf /src && useradd --system --uid 900 coget
USER 900
WORKDIR /
EXPOSE 4000
# Without further options, it serves nobody outside of its container.
ENTRYPOINT ["coget-depot", "serve", "--listen", "0.0.0.0:4000"]
