"""Objects of S3 services: keys and places, checksums, errors, and servers that steal or change what they have.

moto answers as S3 does; `tests/contracts` has the promises of all engines, on a faster server.
"""

import hashlib
import hmac
import re
import ssl
import sys
from random import Random

import pytest

from coalloc.api import Request, download
from coalloc.engine.http import HTTPSource
from coalloc.engine.s3 import S3Source
from coalloc.engine.s3.account import _session_of
from coalloc.engine.s3.answers import checksums
from coalloc.engine.s3.objects import S3Place, object_url
from coalloc.errors import (
    AddressRefused,
    LoginRefused,
    NoSuchFile,
    PermissionRefused,
    ReplicaChanged,
    ServerBusy,
    SourceError,
    Unsupported,
    UsageError,
)
from coalloc.util.addresses import AddressClass, AddressPolicy
from coalloc.util.dialer import DirectDialer
from tests.coalloc.engine.http.test_redirects import answering
from tests.support.coget import coget
from tests.support.fetching import collect, opened, options
from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx
from tests.support.s3 import KEYS, Moto, use_s3
from tests.support.scripted import raw_server

CONTENT = Random(3).randbytes(3_000_000)
NAME = "run 7/x+y%41?#.bin"
OTHER_KEYS = "[other]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = other-secret\naws_session_token = word\n"


@pytest.fixture(scope="module")
def moto():
    with Moto() as server:
        client = server.client()
        client.create_bucket(Bucket="runs")
        client.put_object(Bucket="runs", Key=NAME, Body=CONTENT, ChecksumAlgorithm="SHA256")
        client.put_object(Bucket="runs", Key="public", Body=b"for all", ACL="public-read")
        yield server


@pytest.fixture
def s3(moto, monkeypatch, tmp_path):
    use_s3(monkeypatch, moto.url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "coget").mkdir(parents=True)
    _session_of.cache_clear()
    return moto


def configure(tmp_path, text):
    (tmp_path / "config" / "coget" / "config.toml").write_text(text)


async def failure(url, **changes):
    source = S3Source(url, options(**changes))
    with pytest.raises(SourceError) as caught:
        await source.open()
    await source.close()
    assert caught.value.remedy
    assert not any(key in f"{caught.value} {caught.value.remedy}" for key in KEYS.values())
    return caught.value


async def test_an_object_with_its_checksums_is_read_by_its_literal_key(s3):
    async with opened(S3Source(f"s3://runs/{NAME}", options())) as source:
        stat = await source.open()
        assert await collect(source, 1000, 2_000_001) == CONTENT[1000:2_000_001]
        assert await source.checksum("sha256", 0, len(CONTENT)) == hashlib.sha256(CONTENT).hexdigest()
    assert stat.size == len(CONTENT)
    assert dict(stat.checksums)["md5"] == hashlib.md5(CONTENT).hexdigest()


async def test_an_object_in_parts_states_no_checksum_of_the_whole(s3):
    client, where = s3.client(), {"Bucket": "runs", "Key": "parts"}
    upload = client.create_multipart_upload(**where)["UploadId"]
    parts = []
    for number, body in ((1, bytes(5 << 20)), (2, b"the end")):
        tag = client.upload_part(**where, UploadId=upload, PartNumber=number, Body=body)["ETag"]
        parts.append({"ETag": tag, "PartNumber": number})
    client.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})
    async with opened(S3Source("s3://runs/parts", options())) as source:
        stat = await source.open()
        assert stat.checksums == ()
        assert stat.validator.endswith('-2"')
        assert await collect(source, 5 << 20, stat.size) == b"the end"


@pytest.mark.parametrize(
    "headers",
    [
        {"etag": '"d41d8cd98f00b204e9800998ecf8427e"', "x-amz-server-side-encryption": "aws:kms"},
        {"etag": '"d41d8cd98f00b204e9800998ecf8427e"', "x-amz-server-side-encryption-customer-algorithm": "AES256"},
        {"etag": '"d41d8cd98f00b204e9800998ecf8427e-3"'},
        {"etag": 'W/"d41d8cd98f00b204e9800998ecf8427e"'},
        {"x-amz-checksum-sha256": "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=-2"},
        {"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-type": "COMPOSITE"},
        {"x-amz-checksum-crc32": "AAAAAAAA"},
        {"x-amz-checksum-crc32": "AAAA AA=="},
        {"x-amz-checksum-md4": "AAAAAA=="},
    ],
)
def test_values_that_are_no_checksums_of_the_whole_object(headers):
    assert checksums(headers, "runs") == ()


def test_entity_tags_of_directory_buckets_are_no_checksums():
    assert checksums({"etag": '"d41d8cd98f00b204e9800998ecf8427e"'}, "runs--use1-az4--x-s3") == ()


@pytest.mark.parametrize(
    ("place", "url"),
    [
        (S3Place("runs", "us-east-1"), "https://runs.s3.us-east-1.amazonaws.com/k/%C3%A4"),
        (S3Place("runs.2024", "us-east-1"), "https://s3.us-east-1.amazonaws.com/runs.2024/k/%C3%A4"),
        (S3Place("runs", "cn-north-1"), "https://runs.s3.cn-north-1.amazonaws.com.cn/k/%C3%A4"),
        (S3Place("t:runs", "x", "https://ceph:7480/"), "https://ceph:7480/t%3Aruns/k/%C3%A4"),
        (S3Place("runs", "x", "https://ceph:7480", virtual=True), "https://runs.ceph:7480/k/%C3%A4"),
    ],
)
def test_the_host_and_path_of_a_bucket(place, url):
    assert object_url(place, "k/ä") == url


async def test_errors_name_what_is_missing(s3):
    error = await failure("s3://runs/nothing")
    assert type(error) is NoSuchFile
    assert "key" in error.remedy
    error = await failure("s3://no-bucket/x")
    assert type(error) is NoSuchFile
    assert "bucket" in error.remedy


ANSWERS = [
    (403, "AccessDenied", PermissionRefused, "owner"),
    (403, "InvalidAccessKeyId", LoginRefused, "AWS_PROFILE"),
    (403, "SignatureDoesNotMatch", LoginRefused, "AWS_PROFILE"),
    (400, "ExpiredToken", LoginRefused, "log in again"),
    (403, "RequestTimeTooSkewed", LoginRefused, "clock"),
    (503, "SlowDown", ServerBusy, "later"),
    (403, "InvalidObjectState", Unsupported, "archive"),
    (307, "TemporaryRedirect", Unsupported, "region"),
    (412, "PreconditionFailed", ReplicaChanged, "again"),
    (404, "Unheard-of", NoSuchFile, "path"),
]


@pytest.mark.parametrize(("status", "code", "kind", "remedy"), ANSWERS)
async def test_error_codes_are_understood(s3, monkeypatch, status, code, kind, remedy):
    document = f"<Error><Code>{code}</Code></Error>"
    reply = f"HTTP/1.1 {status} No\nContent-Length: {len(document)}\n\n{document}"
    async with answering(lambda _: reply) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        error = await failure("s3://runs/x")
    assert isinstance(error, kind)
    assert remedy in error.remedy


async def test_an_object_that_changes_between_two_ranges_is_noticed(s3):
    client = s3.client()
    client.put_object(Bucket="runs", Key="changing", Body=bytes(100_000))
    async with opened(S3Source("s3://runs/changing", options())) as source:
        assert await collect(source, 0, 1000) == bytes(1000)
        client.put_object(Bucket="runs", Key="changing", Body=b"\1" * 100_000)
        with pytest.raises(ReplicaChanged):
            await collect(source, 1000, 2000)


def has_object(request):
    size, span = len(CONTENT), re.search(r"Range: bytes=(\d+)-(\d+)", request)
    if request.startswith("HEAD"):
        return f'HTTP/1.1 200 OK\nContent-Length: {size}\nAccept-Ranges: bytes\nETag: "1-1"\n\n'
    start, end = int(span[1]), int(span[2]) + 1
    return (
        f"HTTP/1.1 206 OK\nContent-Length: {end - start}\nContent-Range: bytes {start}-{end - 1}/{size}\n"
        f'ETag: "1-1"\n\n' + "x" * (end - start)
    )


def is_signed(request, secret):
    """Return whether the signature of a request is the one that AWS documents (Signature Version 4)."""
    first, *lines = request.rstrip().split("\r\n")
    method, target, _ = first.split()
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    authorization = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=[^/]+/(.+), SignedHeaders=(.+), Signature=(.+)", headers["authorization"]
    )
    scope, signed, signature = authorization.groups()
    named = [f"{name}:{headers[name]}" for name in signed.split(";")]
    canonical = "\n".join([method, target, "", *named, "", signed, headers["x-amz-content-sha256"]])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for text in (*scope.split("/"), "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, digest])):
        key = hmac.digest(key, text.encode(), "sha256")
    return "host" in signed.split(";") and key.hex() == signature


@pytest.mark.parametrize("key", [NAME, "x", "a//b", "ä~b=c&d"])
async def test_signatures_are_valid(s3, monkeypatch, key):
    async with answering(has_object) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        async with opened(S3Source(f"s3://runs/{key}", options())) as source:
            assert await collect(source, 0, 4) == b"xxxx"
    assert [each.split()[0] for each in server] == ["HEAD", "GET"]
    for request in server:
        assert is_signed(request, KEYS["AWS_SECRET_ACCESS_KEY"])
        assert not is_signed(request.replace("/runs/", "/other/"), KEYS["AWS_SECRET_ACCESS_KEY"])


async def test_requests_on_one_connection_over_tls_are_signed_each(s3, monkeypatch, grid):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(grid.localhost.certificate, grid.localhost.key)
    connections, heard = [], []

    async def serve(reader, writer):
        await writer.start_tls(context)
        connections.append(writer)
        while True:
            heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
            head, blank, body = has_object(heard[-1]).partition("\n\n")
            writer.write(f"{head}{blank}".replace("\n", "\r\n").encode() + body.encode())

    async with raw_server(serve) as port:
        use_s3(monkeypatch, f"https://localhost:{port}", SSL_CERT_FILE=str(grid.authority.certificate))
        async with opened(S3Source(f"s3://runs/{NAME}", options())) as source:
            for start in (0, 100, 7):
                assert await collect(source, start, start + 4) == b"xxxx"
    assert len(connections) == 1
    assert len(heard) == 4
    assert all(is_signed(request, KEYS["AWS_SECRET_ACCESS_KEY"]) for request in heard)


async def test_profiles_and_rules_choose_keys_and_servers(s3, monkeypatch, tmp_path):
    (tmp_path / "credentials").write_text(OTHER_KEYS)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    async with answering(has_object) as server:
        configure(
            tmp_path,
            f'[s3.ceph]\nendpoint = "{server.url}"\nbucket = "tenant:runs"\nprofile = "other"\nregion = "here"\n'
            f'[s3.open]\nendpoint = "{server.url}"\nanonymous = true\n',
        )
        for url in ("s3://ceph/x", "s3://open/x"):
            async with opened(S3Source(url, options())) as source:
                assert await collect(source, 0, 4) == b"xxxx"
    assert [each.split(" ")[1] for each in server] == ["/tenant%3Aruns/x"] * 2 + ["/open/x"] * 2
    signed, *_ = server.headers("authorization")
    assert re.match("AWS4-HMAC-SHA256 Credential=AKIAOTHER/[0-9]{8}/here/s3/aws4_request, ", signed)
    assert server.headers("x-amz-security-token") == ["word", "word", None, None]
    assert server.headers("authorization")[2:] == [None, None]
    assert server.headers("x-amz-request-payer") == [None] * 4
    assert "other-secret" not in "".join(server)


async def test_without_keys_requests_are_not_signed(s3, monkeypatch):
    for name in KEYS:
        monkeypatch.delenv(name)
    async with opened(S3Source("s3://runs/public", options())) as source:
        assert await collect(source, 0, 7) == b"for all"
    assert isinstance(await failure(f"s3://runs/{NAME}"), PermissionRefused)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_redirect_is_followed(s3, monkeypatch, status):
    async with answering(has_object) as thief:
        moved = f"HTTP/1.1 {status} Moved\nLocation: {thief.url}/runs/x\nContent-Length: 0\n\n"
        async with answering(lambda _: moved) as server:
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
            await failure("s3://runs/x")
    assert server
    assert not thief


async def test_a_bucket_of_another_region_is_asked_there_with_a_signature_for_it(s3, monkeypatch):
    def reply(request):
        if "/eu-west-1/s3/" in request:
            return has_object(request)
        return "HTTP/1.1 400 No\nx-amz-bucket-region: eu-west-1\nContent-Length: 0\n\n"

    async with answering(reply) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        async with opened(S3Source("s3://runs/x", options())) as source:
            assert (await source.open()).size == len(CONTENT)


@pytest.mark.parametrize("region", ["evil.example/", "a.b", "x@evil", ""])
async def test_no_server_chooses_another_host_by_the_name_of_a_region(s3, monkeypatch, region):
    reply = f"HTTP/1.1 301 Moved\nx-amz-bucket-region: {region}\nContent-Length: 0\n\n"
    async with answering(lambda _: reply) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        await failure("s3://runs/x")
    assert len(server) == 2


async def test_keys_that_expire_in_the_middle_are_read_again(s3, monkeypatch, tmp_path):
    file = tmp_path / "credentials"
    file.write_text(OTHER_KEYS.replace("other]", "default]"))
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    valid = ["AKIAOTHER"]
    refused = "<Error><Code>ExpiredToken</Code></Error>"

    def reply(request):
        if f"Credential={valid[0]}/" in request:
            return has_object(request)
        return f"HTTP/1.1 400 No\nContent-Length: {len(refused)}\n\n{refused}"

    async with answering(reply) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        async with opened(S3Source("s3://runs/x", options())) as source:
            assert await collect(source, 0, 4) == b"xxxx"
            valid[0] = "AKIANEW"
            with pytest.raises(LoginRefused):
                await collect(source, 4, 8)
            file.write_text(file.read_text().replace("AKIAOTHER", "AKIANEW"))
            assert await collect(source, 4, 8) == b"xxxx"


async def test_only_the_user_names_objects(s3):
    policy = AddressPolicy(innermost=AddressClass.PUBLIC)
    assert type(await failure("s3://runs/public", dialer=DirectDialer(policy))) is AddressRefused


@pytest.mark.parametrize(
    "url", ["s3://runs", "s3://runs/", "s3://host:9000/runs/x", "s3://key:secret@runs/x", "s3:///x", "s3://a/../x"]
)
def test_urls_that_name_no_object(url):
    with pytest.raises(UsageError) as caught:
        S3Source(url, options())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["ftp://host", "https://key:word@host", "host", "https://host?x"])
async def test_endpoints_that_are_none(s3, monkeypatch, endpoint):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    error = await failure("s3://runs/x")
    assert type(error) is Unsupported
    assert "word" not in str(error)


@pytest.mark.parametrize("text", ["[s3.runs]\nanonymous = 1", "[s3.runs]\nkeys = 'x'", "s3 = 'x'", "[s3]\nruns = []"])
async def test_rules_that_are_none(s3, tmp_path, text):
    configure(tmp_path, text)
    assert "[s3.runs]" in str(await failure("s3://runs/x"))


async def test_a_profile_that_is_not_there_is_named_and_other_replicas_are_used(s3, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_PROFILE", "nobodys")
    assert "nobodys" in str(await failure("s3://runs/x"))
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "x").write_bytes(CONTENT)
    with Nginx(tmp_path / "web", tmp_path / "run") as web:
        await download(Request(("s3://runs/x", web.url("x")), output=tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == CONTENT


async def test_without_botocore_the_extra_is_named(s3, monkeypatch):
    for name in ("botocore", "botocore.session", "botocore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    error = await failure("s3://runs/x")
    assert type(error) is Unsupported
    assert "coget[s3]" in error.remedy


def test_keys_are_in_no_output(s3, tmp_path):
    """The server repeats all that it receives."""
    secrets = {**KEYS, "AWS_SESSION_TOKEN": "token-of-the-session"}
    result = coget(["-v", "s3://runs/nothing"], tmp_path, AWS_ENDPOINT_URL=s3.url, **secrets)
    assert result.returncode == 3
    assert not any(secret in result.stdout + result.stderr for secret in secrets.values())
    assert "Credential=" not in result.stderr


async def test_one_file_from_s3_http_and_ftp_at_once(s3, tmp_path):
    content = CONTENT * 8
    for place in ("web", "ftp"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "x").write_bytes(content)
    s3.client().put_object(Bucket="runs", Key="x", Body=content)
    with Nginx(tmp_path / "web", tmp_path / "run") as web, GridFTPServer(tmp_path / "ftp") as ftp:
        urls = ("s3://runs/x", web.url("x"), ftp.url("x"))
        (report,) = await download(Request(urls, output=tmp_path / "out", strategy="brute"))
    assert (tmp_path / "out").read_bytes() == content
    assert {each.url.partition(":")[0] for each in report.sources if each.bytes} == {"s3", "http", "ftp"}
    assert report.compared


async def test_a_presigned_url_is_plain_http(s3):
    url = s3.client().generate_presigned_url("get_object", {"Bucket": "runs", "Key": NAME})
    async with opened(HTTPSource(url, options())) as source:
        assert (await source.open()).size == len(CONTENT)
        assert await collect(source, 5, 1005) == CONTENT[5:1005]
