"""Metalink 4: read exactly or refused with a line number; written documents are read back."""

import hashlib
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.errors import UsageError
from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.model.replicas import Origin, Replica, ReplicaSet
from coalloc.resolve import metalink
from coalloc.resolve.xml_tree import MAX_ELEMENTS
from coalloc.util import checksums
from tests.support.scripted import limited
from tests.support.waiting import PATIENCE

PUBLISHED = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
MD5, OTHER_MD5, SHA1, SHA256 = "0" * 32, "1" * 32, "a" * 40, "b" * 64

EXAMPLE = f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- after the example of RFC 5854 -->
<metalink xmlns="urn:ietf:params:xml:ns:metalink" xmlns:x="urn:x">
  <published>2009-05-15T12:23:23Z</published>
  <x:extra>ignored</x:extra>
  <file name="set/example.ext">
    <size>14471447</size>
    <identity>Example</identity>
    <hash type="sha-256">{SHA256.upper()}</hash>
    <hash type="MD5">
      {MD5}
    </hash>
    <hash type="whirlpool">beef</hash>
    <pieces length="5000000" type="md5"><hash>{MD5}</hash><hash>{MD5}</hash><hash>{OTHER_MD5}</hash></pieces>
    <pieces length="10000000" type="sha-1"><hash>{SHA1}</hash><hash>{SHA1}</hash></pieces>
    <url location="de" priority="2">ftp://ftp.example.com/example.ext</url>
    <url priority="1" location="FR"> http://example.com/example.ext?a=1&amp;b=2 </url>
    <url>gsiftp://grid.example.com/example.ext</url>
    <url priority="9">ftp://ftp.example.com/example.ext</url>
    <metaurl mediatype="torrent" priority="3">http://example.com/example.ext.torrent</metaurl>
  </file>
  <file name="second"><url>ftp://h/second</url></file>
</metalink>
"""


def test_all_that_matters_is_read():
    first, second = metalink.read(EXAMPLE.encode(), "example.meta4")
    assert first == ReplicaSet(
        name="set/example.ext",
        replicas=(
            Replica("ftp://ftp.example.com/example.ext", 2, "de"),
            Replica("http://example.com/example.ext?a=1&b=2", 1, "fr"),
            Replica("gsiftp://grid.example.com/example.ext"),
        ),
        size=14471447,
        checksums=(Checksum("sha256", SHA256), Checksum("md5", MD5)),
        pieces=PieceHashes("sha1", 10_000_000, (SHA1, SHA1)),
    )
    assert second == ReplicaSet("second", (Replica("ftp://h/second"),))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1"])
def test_other_encodings_are_read(encoding):
    declared = {"iso-8859-1": "ISO-8859-1", "utf-16": "UTF-16"}.get(encoding, "UTF-8")
    text = EXAMPLE.replace("UTF-8", declared).replace("set/example.ext", "été")
    assert metalink.read(text.encode(encoding), "x")[0].name == "été"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("set/example.ext", "../x", 6, "'..' component"),
        ("set/example.ext", "/etc/passwd", 6, "is absolute"),
        ("set/example.ext", "C:/x", 6, "is absolute"),
        ("set/example.ext", "a&#9;b", 6, "control character"),
        ('name="set/example.ext"', "", 6, "is empty"),
        ('name="second"', 'name="set/example.ext"', 3, "two files have the same name"),
        ("14471447", "many", 7, "'many' is not a whole number"),
        ("14471447", "-1", 7, "not a whole number"),
        ("14471447", "9" * 5000, 7, "not a whole number"),
        ("14471447", "٣", 7, "not a whole number"),
        ("14471447", "1", 14, "3 hashes, where 1 bytes in pieces of 5000000 need 1"),
        (SHA256.upper(), "beef", 9, "invalid sha256"),
        ('type="sha-256"', "", 9, "'type' is missing"),
        ('type="sha-256"', 'type="md5"', 9, "invalid md5"),
        ('type="whirlpool">beef', f'type="md5">{OTHER_MD5}', 13, "second, different md5"),
        (OTHER_MD5, "no hash", 14, "invalid md5"),
        ('length="10000000"', 'length="0"', 15, "'0' is not a whole number"),
        ('length="10000000" ', "", 15, "'length' is missing"),
        ('priority="1"', 'priority="0"', 17, "'0' is not a whole number from 1 to 999999"),
        ("gsiftp://grid", "grid", 18, "is not a URL"),
        ("gsiftp://grid.example.com/example.ext", "ftp://a:pw@[x/y", 18, "is not a URL"),
        ("<url>ftp://h/second</url>", "", 22, "it has no <url>"),
    ],
)
def test_errors_name_the_line_and_the_element(old, new, line, words):
    assert old in EXAMPLE
    with pytest.raises(UsageError) as caught:
        metalink.read(EXAMPLE.replace(old, new, 1).encode(), "example.meta4")
    assert f"example.meta4, line {line}, <" in caught.value.message
    assert words in caught.value.message
    assert "pw" not in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "no element found: line 1"),
        (b"\x7fELF\x02", "is not a Metalink"),
        (b"<metalink", "is not a Metalink"),
        (b"<?xml version='1.0' encoding='klingon'?><metalink/>", "is not a Metalink"),
        (b"<?xml version='1.0' encoding='big5'?><metalink/>", "is not a Metalink"),
        (b"<html></html>", "not a Metalink but a <html>"),
        (b"<metalink/>", "not a Metalink but a <metalink>"),
        (b'<metalink version="3.0" xmlns="http://www.metalinker.org/"/>', "it has no <file>"),
        (b'<metalink xmlns="urn:ietf:params:xml:ns:metalink"/>', "it has no <file>"),
        (b"<!DOCTYPE metalink><metalink/>", "document type or entities"),
        (b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>', "document type or entities"),
        (b'<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><a>&c;</a>', "document type or entities"),
        (b" " * (metalink.MAX_BYTES + 1), "too large"),
        (b"<a>" * (MAX_ELEMENTS + 1), "more than 250000 elements"),
    ],
)
def test_documents_that_are_no_metalinks_are_refused(document, words):
    with pytest.raises(UsageError) as caught:
        metalink.read(document, "x.meta4")
    assert words in caught.value.message
    assert "x.meta4" in caught.value.message
    assert caught.value.remedy


def hexes(digits: int) -> st.SearchStrategy[str]:
    return st.text("0123456789abcdef", min_size=digits, max_size=digits)


words = st.text("abc <>&'\"é-.", min_size=1).filter(lambda word: word.strip(" .") == word)
checksum = st.sampled_from(list(checksums.ALGORITHMS)).flatmap(
    lambda algorithm: st.builds(Checksum, st.just(algorithm), hexes(checksums.ALGORITHMS[algorithm]))
)
replica = st.builds(
    Replica,
    st.builds("ftp://{}/{}".format, st.sampled_from(["h", "[::1]:2811", "ann@h"]), words),
    st.none() | st.integers(1, 999_999),
    st.none() | st.sampled_from(["de", "fr"]),
    st.just(Origin()),
    st.none(),
    st.none(),
)


@st.composite
def replica_sets(draw):
    length, count = draw(st.integers(1, 10**9)), draw(st.integers(0, 4))
    size = (
        draw(st.integers(max(0, length * (count - 1) + 1), length * count)) if count else draw(st.none() | st.just(0))
    )
    algorithm = draw(st.sampled_from(["md5", "sha1", "sha256"]))
    values = tuple(draw(hexes(checksums.ALGORITHMS[algorithm])) for _ in range(count))
    return ReplicaSet(
        name="/".join(draw(st.lists(words, min_size=1, max_size=3))),
        replicas=tuple(draw(st.lists(replica, min_size=1, max_size=4, unique_by=lambda replica: replica.url))),
        size=size,
        checksums=tuple(draw(st.lists(checksum, max_size=3, unique_by=lambda checksum: checksum.algorithm))),
        pieces=PieceHashes(algorithm, length, values) if count else None,
    )


@settings(deadline=None)
@given(st.lists(replica_sets(), min_size=1, max_size=3, unique_by=lambda file: file.name))
def test_written_documents_are_read_back_unchanged(files):
    assert metalink.read(metalink.write(files, PUBLISHED).encode(), "written") == files


def test_no_password_is_written():
    text = metalink.write([ReplicaSet("x", (Replica("ftp://ann:secret@h/x"),))], PUBLISHED)
    assert "secret" not in text
    assert "<published>2024-05-06T07:08:09Z</published>" in text


def test_aria2_fetches_and_verifies_by_what_is_written(serve, tmp_path):
    content = bytes(range(256)) * 1024
    pieces = tuple(hashlib.sha1(content[i : i + 2**16]).hexdigest() for i in range(0, len(content), 2**16))
    server = serve({"/x": (200, "application/octet-stream", content)})
    file = ReplicaSet(
        name="été/x y",
        replicas=(Replica(f"{server}/missing", 1), Replica(f"{server}/x", 2, "de")),
        size=len(content),
        checksums=(Checksum("sha256", hashlib.sha256(content).hexdigest()),),
        pieces=PieceHashes("sha1", 2**16, pieces),
    )
    document = tmp_path / "x.meta4"
    document.write_text(metalink.write([file], PUBLISHED), encoding="utf-8")
    command = ["aria2c", "--no-conf", "--check-integrity", "--dir", tmp_path, "--metalink-file", document]
    shown = subprocess.run([*command, "--show-files"], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "été/x y" in shown.stdout
    subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
    assert (tmp_path / "été/x y").read_bytes() == content
    wrong = ReplicaSet(file.name, file.replicas, file.size, (Checksum("sha256", SHA256),))
    document.write_text(metalink.write([wrong], PUBLISHED), encoding="utf-8")
    (tmp_path / "été/x y").unlink()
    assert subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False).returncode != 0


def many(number):
    """Return a Metalink of a file with this many replicas."""
    replicas = "".join(f"<url>ftp://h/{each}</url>" for each in range(number))
    return f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="x">{replicas}</file></metalink>'.encode()


def test_replicas_of_a_file_are_bounded():
    (file,) = metalink.read(many(metalink.MOST_REPLICAS), "x.meta4")
    assert len(file.replicas) == metalink.MOST_REPLICAS
    with pytest.raises(UsageError, match="more than 1000 replicas") as caught:
        metalink.read(many(240_000), "x.meta4")
    assert caught.value.remedy


def numbered(template, number):
    """Return this many copies of a template, each with its own number."""
    return "".join(template.format(each) for each in range(number))


READ = """
from pathlib import Path
from coalloc.resolve import metalink
try:
    print(len(metalink.read(Path(sys.argv[1]).read_bytes(), "x.meta4")))
except CoallocError as error:
    print_error(error)
"""
BEGIN = '<metalink xmlns="urn:ietf:params:xml:ns:metalink">'
LARGE: dict[str, Callable[[], str]] = {
    "replicas": lambda: many(240_000).decode(),
    "slashes": lambda: f'{BEGIN}<file name="x"><url>ftp{"/" * 15_000_000}</url></file></metalink>',
    "a long name": lambda: f'{BEGIN}<file name="{"/" * 15_000_000}"><url>ftp://h/x</url></file></metalink>',
    "a long host": lambda: f'{BEGIN}<file name="x"><url>ftp://{"a." * 7_000_000}/x</url></file></metalink>',
    "a long size": lambda: (
        f'{BEGIN}<file name="x"><size>{"9" * 15_000_000}</size><url>ftp://h/x</url></file></metalink>'
    ),
    "depth": lambda: BEGIN + '<file name="x">' * 240_000,
    "nested": lambda: f"{BEGIN}{'<file>' * 100_000}{'</file>' * 100_000}</metalink>",
    "tags in a long namespace": lambda: f'<m xmlns:p="{"u" * 60_000}">' + numbered("<p:a{}/>", 100_000),
    "one tag in a long namespace": lambda: f'<m xmlns:p="{"u" * 100_000}">{"<p:a/>" * 200_000}',
    "attributes in a long namespace": lambda: f"<m xmlns:p='{'u' * 60_000}'><y " + numbered(" p:a{}=''", 20_000) + "/>",
    "attributes": lambda: BEGIN + "<y" + numbered(" a{}=''", 1_000_000) + "/>",
    "attributes of many": lambda: BEGIN + numbered("<y a{0}='' b{0}='' c{0}=''/>", 240_000),
    "namespaces": lambda: BEGIN + "<y" + numbered(" xmlns:a{}='u'", 800_000) + "/>",
    "namespaces of many": lambda: BEGIN + numbered("<y xmlns:a{0}='u' xmlns:b{0}='u'/>", 240_000),
    "names in a namespace": lambda: f'{BEGIN}<y xmlns:p="{"u" * 250}">' + numbered("<p:a{0} p:b{0}=''/>", 250_001),
    "a long tag": lambda: f"{BEGIN}<{'y' * 15_000_000}/>",
    "a long comment": lambda: f"{BEGIN}<!--{'y' * 15_000_000}-->",
    "a tag that does not end": lambda: f"{BEGIN}<y a='{'y' * 15_000_000}",
    "instructions": lambda: BEGIN + numbered("<?a{}?>", 1_500_000),
    "text": lambda: f"{BEGIN}<file name='x'><url>{chr(0x1F600) * 4_000_000}",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", LARGE)
async def test_a_large_document_takes_little_time_and_memory(tmp_path, kind):
    document = tmp_path / "x.meta4"
    document.write_text(LARGE[kind]())
    output = await limited(READ, str(document), memory=300 << 20, seconds=20)
    assert output.startswith("UsageError |"), output
    assert len(output) < 1000


def test_unknown_elements_are_left_out_with_their_content():
    inner = '<x:y xmlns:x="urn:x"><url>ftp://h/2</url><file name="z"/>text</x:y>'
    document = f'{BEGIN}<url>ftp://h/3</url><file name="x">{inner}<url>ftp://h<!-- -->/1</url></file>{inner}</metalink>'
    (file,) = metalink.read(document.encode(), "x.meta4")
    assert (file.name, [replica.url for replica in file.replicas]) == ("x", ["ftp://h/1"])


def test_control_characters_are_written_as_xml_escapes():
    file = ReplicaSet("a\u200bb\x7f\x9bc.root", (Replica("ftp://a.example/x"),))
    written = metalink.write([file], datetime(2026, 1, 1, tzinfo=UTC))
    assert 'name="a&#8203;b&#127;&#155;c.root"' in written
