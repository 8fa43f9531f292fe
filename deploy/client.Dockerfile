# The client, with grid certificates and S3. It writes only into /data, as any user that `--user` names.
FROM python:3.11-slim
COPY . /src
RUN pip install --no-cache-dir '/src[gsi,s3]' && rm -rf /src && useradd --system --uid 900 coget \
    && install -d -o coget /data
USER 900
WORKDIR /data
# The home directory may be missing, and would end with the container.
ENV COGET_HISTORY=off
ENTRYPOINT ["coget"]
