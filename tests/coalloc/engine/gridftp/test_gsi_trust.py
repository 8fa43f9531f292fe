"""Servers whose certificates are revoked, or signed by an authority that may not sign such names."""

import contextlib
import logging
import shutil
import subprocess
import sys

import pytest

from coalloc.engine.gridftp import GridFTPSource
from coalloc.engine.gridftp.gsi.der import certificate, from_pem, revocation_list
from coalloc.engine.gridftp.gsi.names import globus_name, hashes
from coalloc.engine.gridftp.gsi.policies import may_sign
from coalloc.engine.gridftp.gsi.security import warn_once
from coalloc.engine.gridftp.gsi.trust import survey
from coalloc.errors import PermissionRefused
from tests.support.fetching import collect, opened, options, random_file
from tests.support.gsi_server import GreedyServer
from tests.support.waiting import PATIENCE

CA = "/O=Test Grid/CN=Test CA"
SIZE = 1000


@pytest.fixture
def content(gsi_server):
    return random_file(gsi_server.root / "file", SIZE)


@pytest.fixture
def folder(grid, as_alice, tmp_path, monkeypatch):
    """Return the client's own directory of authorities, without the servers' files and without a revocation list."""
    warn_once.cache_clear()
    shutil.copytree(grid.trusted, tmp_path / "trusted", ignore=shutil.ignore_patterns("*.r0"))
    monkeypatch.setenv("X509_CERT_DIR", str(tmp_path / "trusted"))
    return tmp_path / "trusted"


@pytest.fixture
def stem(grid):
    return grid.hashed()


@pytest.fixture
def warned(caplog):
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records if record.name.startswith("coalloc")]


def policy(*patterns, ca=CA):
    quoted = " ".join(f'"{pattern}"' for pattern in patterns)
    return f"access_id_CA  X509  '{ca}'\npos_rights globus CA:sign\ncond_subjects\tglobus '{quoted}'\n"


async def fetched(server):
    async with opened(GridFTPSource(server.url("file", "gsiftp"), options())) as source:
        return await collect(source, 0, SIZE)


async def test_all_in_order_warns_of_nothing(gsi_server, content, grid, alice, folder, stem, warned):
    grid.revoke(alice, to=folder / f"{stem}.r0")
    assert await fetched(gsi_server) == content
    assert not warned()


@pytest.mark.parametrize("name", ["{new}.r0", "{old}.r0", "{new}.r1", "{new}.r3"])
@pytest.mark.parametrize("library", [True, False])
async def test_a_revoked_server_is_refused(gsi_server, content, grid, alice, folder, stem, monkeypatch, name, library):
    """Found by either kind of hash, in the second list or a later one, too, and without the optional package."""
    if not library:
        monkeypatch.setitem(sys.modules, "cryptography", None)
    grid.revoke(alice, to=folder / f"{stem}.r0")
    file = folder / name.format(new=stem, old=grid.hashed(old=True))
    file.unlink(missing_ok=True)
    grid.revoke(grid.localhost, to=file)
    with pytest.raises(
        PermissionRefused, match="certificate of /O=Test Grid/CN=localhost was revoked by /O=Test Grid/CN"
    ):
        await fetched(gsi_server)


async def test_a_list_behind_a_link_and_in_der(gsi_server, content, grid, folder, stem, tmp_path):
    file = grid.revoke(grid.localhost, to=tmp_path / "list.pem")
    der = tmp_path / "list.der"
    der.write_bytes(from_pem(file.read_bytes(), b"X509 CRL"))
    (folder / f"{stem}.r0").symlink_to(der)
    with pytest.raises(PermissionRefused, match="was revoked"):
        await fetched(gsi_server)


@pytest.mark.parametrize(("days", "revoked"), [((-9, -1), False), ((1, 2), False), ((-9, -1), True)])
async def test_a_list_that_is_not_valid_now(gsi_server, content, grid, folder, stem, warned, days, revoked):
    """An outdated list causes a warning; its revocations still count."""
    grid.revoke(*([grid.localhost] if revoked else []), to=folder / f"{stem}.r0", days=days)
    if revoked:
        with pytest.raises(PermissionRefused, match="was revoked"):
            await fetched(gsi_server)
        return
    assert await fetched(gsi_server) == await fetched(gsi_server) == content
    (message,) = warned()
    assert f"the revocation list of {CA} has expired, or is not valid yet" in message
    assert "fetch-crl" in message


@pytest.mark.parametrize(
    "spoil", [lambda file: None, lambda file: file.write_bytes(b"nonsense"), lambda file: file.mkdir()]
)
async def test_no_list_that_can_be_read(gsi_server, content, folder, stem, warned, spoil):
    spoil(folder / f"{stem}.r0")
    assert await fetched(gsi_server) == await fetched(gsi_server) == content
    (message,) = warned()
    assert f"there is no revocation list of {CA}" in message


async def test_a_server_below_a_revoked_authority(grid, folder, stem):
    """The server does not learn the client's identity."""
    middle = grid.intermediate()
    async with GreedyServer(grid, grid.host_below(middle), "N") as server:
        await GridFTPSource(server.url(), options()).open()
        assert len(server.logins) == 1
        grid.revoke(middle, to=folder / f"{stem}.r0")
        with pytest.raises(PermissionRefused, match="certificate of /O=Test Grid/CN=Intermediate CA was revoked"):
            await GridFTPSource(server.url(), options()).open()
        assert len(server.logins) == 1


async def test_a_server_revoked_by_an_intermediate_authority(grid, folder):
    middle = grid.intermediate()
    host = grid.host_below(middle)
    grid.revoke(host, by=middle, to=folder / f"{grid.hashed(middle)}.r0")
    async with GreedyServer(grid, host, "N") as server:
        with pytest.raises(PermissionRefused, match="was revoked by /O=Test Grid/CN=Intermediate CA"):
            await GridFTPSource(server.url(), options()).open()
        assert not server.logins


async def test_the_policy_of_an_intermediate_authority(grid, folder):
    middle = grid.intermediate()
    file = folder / f"{grid.hashed(middle)}.signing_policy"
    file.write_text(policy("/O=Elsewhere/*", ca="/O=Test Grid/CN=Intermediate CA"))
    async with GreedyServer(grid, grid.host_below(middle), "N") as server:
        with pytest.raises(PermissionRefused, match="Intermediate CA may not sign /O=Test Grid/CN=localhost"):
            await GridFTPSource(server.url(), options()).open()
        assert not server.logins


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        policy("/O=Elsewhere/*"),
        policy("/O=Test Grid/*", ca="/O=Test Grid/CN=Other CA"),
        policy("/O=Test Grid/*").replace("pos_rights", "neg_rights"),
        "",
    ],
    ids=["another name", "another authority", "denied", "empty"],
)
async def test_a_violated_policy_is_refused(gsi_server, content, grid, folder, stem, text, old):
    (folder / f"{stem}.signing_policy").unlink()
    (folder / f"{grid.hashed(old=old)}.signing_policy").write_text(text)
    with pytest.raises(PermissionRefused, match="/O=Test Grid/CN=Test CA may not sign /O=Test Grid/CN=localhost"):
        await fetched(gsi_server)


def test_the_real_client_refuses_the_same(gsi_server, content, folder, stem):
    """All violations for coget are violations for the Globus tool, too."""
    (folder / f"{stem}.signing_policy").write_text(policy("/O=Elsewhere/*"))
    command = [
        "globus-url-copy",
        gsi_server.url("file", "gsiftp").replace(gsi_server.host, "localhost"),
        "file:///dev/null",
    ]
    done = subprocess.run(command, timeout=PATIENCE, check=False, capture_output=True, text=True)
    assert done.returncode
    assert "policy" in done.stderr


async def test_several_policies_in_a_file(gsi_server, content, grid, folder, stem, warned):
    grid.revoke(to=folder / f"{stem}.r0")
    (folder / f"{stem}.signing_policy").write_text(
        "# two authorities\n" + policy("/O=X/*", ca="/O=X/CN=CA") + policy("/O=A/*", "/O=Test Grid/CN=local?ost")
    )
    assert await fetched(gsi_server) == content
    assert not warned()


async def test_an_absent_policy_warns_once(gsi_server, content, grid, folder, stem, warned):
    grid.revoke(to=folder / f"{stem}.r0")
    (folder / f"{stem}.signing_policy").unlink()
    assert await fetched(gsi_server) == await fetched(gsi_server) == content
    (message,) = warned()
    assert f"there is no signing policy of {CA}" in message


def test_a_survey_names_what_is_missing(grid, folder, stem):
    assert survey(folder) == (1, [CA], [], [])
    grid.revoke(to=folder / f"{stem}.r0", days=(-9, -1))
    (folder / f"{stem}.signing_policy").unlink()
    (folder / f"{grid.hashed(old=True)}.0").symlink_to(folder / f"{stem}.0")
    assert survey(folder) == (1, [], [CA], [CA])


@pytest.mark.parametrize(
    ("patterns", "subject", "allowed"),
    [
        (["/O=Grid/*"], "/O=Grid/CN=a", True),
        (["/O=Grid/*"], "/O=Grid2/CN=a", False),
        (["/O=Grid/CN=*.example"], "/O=Grid/CN=se.example", True),
        (["/O=Grid/CN=*.example"], "/O=Grid/CN=se.example.evil", False),
        (["/O=Grid/CN=se?.example"], "/O=Grid/CN=se1.example", True),
        (["/O=Grid/CN=[a]"], "/O=Grid/CN=a", False),
        (["/O=Grid/CN=a.b"], "/O=Grid/CN=aXb", False),
        (["/O=X/*", "/O=Grid/*"], "/O=Grid/CN=a", True),
        (["/O=Grid/Email=*"], "/O=Grid/emailAddress=a@b", True),
        (["/O=Caf\\xC3\\xA9/*"], "/O=Caf\u00e9/CN=a", True),
        (["*"], "/O=Grid/CN=a", True),
    ],
)
def test_patterns(patterns, subject, allowed):
    assert may_sign(policy(*patterns), CA, subject) is allowed


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (f"access_id_CA X509 '{CA}'\npos_rights globus CA:sign\n", True),
        (f"access_id_CA X509 '{CA}'\ncond_subjects globus '\"*\"'\n", False),
        (f"access_id_CA X509 '{CA}'\npos_rights globus CA:other\ncond_subjects globus '\"*\"'\n", False),
        (f"access_id_CA KRB5 '{CA}'\npos_rights globus CA:sign\n", False),
        (f"access_id_USER X509 '{CA}'\npos_rights globus CA:sign\n", False),
        (
            f"access_id_CA X509 '{CA}'\r\npos_rights globus CA:sign\r\n"
            'cond_subjects globus \'"/O=A/*"\r\n "/O=G/*"\'\r\n',
            True,
        ),
        (f'access_id_CA X509 "{CA}"\npos_rights globus CA:sign\ncond_subjects globus /O=G/*\n', True),
        (f"# access_id_CA X509 '{CA}'\n# pos_rights globus CA:sign\n", False),
        (policy("*") + policy("/O=G/*").replace("pos_", "neg_"), False),
        (policy("*") + "cond_time globus '8-18'\n", False),
    ],
)
def test_policies(text, allowed):
    assert may_sign(text, CA, "/O=G/CN=a") is allowed


@pytest.mark.parametrize(
    "condition",
    [
        "cond_subjects globus",
        "Cond_Subjects globus '\"/O=G/*\"'",
        "cond_subjects\nglobus '\"/O=X/*\"'",
        "\u00a0cond_subjects globus '\"/O=G/*\"'",
        'cond_subjects globus \'"/O=G/*"\n',
        "<<<<<<< a",
    ],
)
def test_unreadable_condition_of_a_policy_allows_no_names(condition):
    begun = f"access_id_CA X509 '{CA}'\npos_rights globus CA:sign\n"
    assert may_sign(begun, CA, "/O=G/CN=a")
    assert may_sign(f"\ufeff# a comment\n\n  # 'another\n{begun}", CA, "/O=G/CN=a")
    assert not may_sign(f"{begun}{condition}\n", CA, "/O=G/CN=a")


@pytest.mark.parametrize(
    "subject",
    [
        "/C=CH/O=Grid/CN=CA",
        "/DC=ch/DC=cern/CN=CERN Grid Certification Authority",
        "/O=  Two   Blanks /CN=UPPER lower",
        "/O=Caf\u00e9/CN=\u00c4",
        "/O=A+CN=B/OU=C",
        "/O=Grid/emailAddress=ca@example.org",
        "/O=Grid/CN=host\\/se1.example",
        f"/O={'long ' * 12}/CN=x",
    ],
)
@pytest.mark.parametrize("kind", ["utf8only", "default"])
def test_names_and_hashes_are_those_of_openssl(tmp_path, subject, kind):
    def openssl(*words):
        return subprocess.run(
            ["openssl", *words], check=True, timeout=PATIENCE, capture_output=True, text=True
        ).stdout.strip()

    config, made = tmp_path / "x.cnf", tmp_path / "x.pem"
    config.write_text(f"[req]\nstring_mask={kind}\ndistinguished_name=d\nprompt=no\n[d]\nCN=x\n")
    new = ["req", "-x509", "-newkey", "rsa:1024", "-nodes", "-keyout", "/dev/null", "-config", config, "-utf8"]
    openssl(*new, "-multivalue-rdn", "-subj", subject, "-out", made)
    name = certificate(from_pem(made.read_bytes(), b"CERTIFICATE")).subject
    assert hashes(name) == tuple(
        openssl("x509", "-in", made, "-noout", option) for option in ("-subject_hash", "-subject_hash_old")
    )
    if subject.isascii() and "+" not in subject:
        assert globus_name(name) == subject.replace("\\/", "/")


@pytest.mark.parametrize("kind", ["certificate", "list"])
def test_truncated_or_altered_der_raises_only_value_error(grid, tmp_path, kind):
    if kind == "list":
        read, der = revocation_list, from_pem(grid.revoke(grid.localhost, to=tmp_path / "l").read_bytes(), b"X509 CRL")
    else:
        read, der = certificate, from_pem(grid.localhost.certificate.read_bytes(), b"CERTIFICATE")
    read(der)
    for end in range(len(der)):
        with pytest.raises(ValueError, match=r"DER is cut|no element|no signed object"):
            read(der[:end])
    for at in range(len(der)):
        for value in (0, 0x7F, 0x80, 0xFF):
            with contextlib.suppress(ValueError):
                read(der[:at] + bytes([value]) + der[at + 1 :])
