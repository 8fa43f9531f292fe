"""Metalink 3, as MirrorBrain, MirrorManager and download managers wrote it."""

import pytest

from coalloc.errors import UsageError
from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.resolve import metalink

MD5, OTHER_MD5, SHA1, OTHER_SHA1 = "0" * 32, "1" * 32, "a" * 40, "b" * 40

OF_A_MIRROR_NETWORK = f"""<?xml version="1.0" encoding="UTF-8"?>
<metalink version="3.0" xmlns="http://www.metalinker.org/" xmlns:x="urn:x" type="dynamic"
  origin="http://download.example.org/set.iso.metalink" pubdate="Tue, 03 Mar 2009 10:00:00 GMT" generator="mirrors">
  <publisher><name>An Example</name><url>http://example.org</url></publisher>
  <files>
    <file name="set.iso">
      <size>500000</size>
      <x:alternates><x:alternate><size>1</size></x:alternate></x:alternates>
      <verification>
        <hash type="md5">{MD5}</hash>
        <hash type="SHA1">{SHA1}</hash>
        <hash type="tiger">beef</hash>
        <signature type="pgp" file="set.iso.asc">-----BEGIN PGP SIGNATURE-----</signature>
        <pieces length="262144" type="sha1">
          <hash piece="1">{OTHER_SHA1}</hash>
          <hash piece="0">{SHA1}</hash>
        </pieces>
      </verification>
      <resources maxconnections="5">
        <url type="bittorrent" preference="100">http://download.example.org/set.iso.torrent</url>
        <url type="http" location="de" preference="100">http://a.example/set.iso</url>
        <url type="ftp" location="US" preference="99"> ftp://b.example/set.iso </url>
        <url protocol="https" type="file" preference="0">https://c.example/set.iso</url>
        <url type="rsync" preference="1000">rsync://d.example/set.iso</url>
        <url>http://e.example/set.iso</url>
      </resources>
    </file>
    <file name="second"><resources><url type="http">http://a.example/second</url></resources></file>
  </files>
</metalink>
"""


def test_all_that_matters_is_read():
    first, second = metalink.read(OF_A_MIRROR_NETWORK.encode(), "set.metalink")
    assert first == ReplicaSet(
        name="set.iso",
        replicas=(
            Replica("http://a.example/set.iso", 1, "de"),
            Replica("ftp://b.example/set.iso", 2, "us"),
            Replica("https://c.example/set.iso", 101),
            Replica("rsync://d.example/set.iso", 1),
            Replica("http://e.example/set.iso"),
        ),
        size=500_000,
        checksums=(Checksum("md5", MD5), Checksum("sha1", SHA1)),
        pieces=PieceHashes("sha1", 262_144, (SHA1, OTHER_SHA1)),
    )
    assert second == ReplicaSet("second", (Replica("http://a.example/second"),))


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('name="set.iso"', 'name="../x"', 6, "'..' component"),
        ("500000", "many", 7, "'many' is not a whole number"),
        ('preference="100">http://a', 'preference="best">http://a', 21, "'best' is not a whole number"),
        (f'<hash piece="1">{OTHER_SHA1}</hash>', "", 14, "1 hashes, where 500000 bytes"),
        ('<hash type="SHA1">', '<hash type="md5">', 11, "invalid md5"),
        ('<url type="http">http://a.example/second</url>', "", 28, "it has no <url>"),
        ('<file name="second">', '<file name="set.iso">', 2, "two files have the same name"),
    ],
)
def test_errors_name_the_line_and_the_element(old, new, line, words):
    assert old in OF_A_MIRROR_NETWORK
    with pytest.raises(UsageError) as caught:
        metalink.read(OF_A_MIRROR_NETWORK.replace(old, new, 1).encode(), "set.metalink")
    assert f"set.metalink, line {line}, <" in caught.value.message
    assert words in caught.value.message


@pytest.mark.parametrize(
    "nested",
    [
        "<files><files><file name='x'/></files></files>",
        "<file name='x'><url>http://a/x</url></file>",
        "<files><file name='x'><resources><resources><url>http://a/x</url></resources></resources></file></files>",
    ],
)
def test_elements_in_the_wrong_places_are_not_read(nested):
    with pytest.raises(UsageError):
        metalink.read(f"<metalink xmlns='http://www.metalinker.org/'>{nested}</metalink>".encode(), "x")
