"""Names from URLs are made safe, names from others are judged.

The file system decides whether two names are equal, and is asked only if they may be.
"""

import os
import unicodedata
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.errors import UsageError
from coalloc.resolve import file_names
from coalloc.resolve.file_names import MOST_FOLDERS, refuse_collisions
from coalloc.safe_text import escaped

FILE_SYSTEMS = {
    "exact": lambda name: name,
    "caseless": str.casefold,
    "upper": str.upper,
    "composed": lambda name: unicodedata.normalize("NFC", name),
    "decomposed and caseless": lambda name: unicodedata.normalize("NFD", name).casefold(),
    "no end": lambda name: name.rstrip(" ."),
    "no width": lambda name: name.replace("\u200d", ""),
    "short": lambda name: "LONGFI~1.TXT" if name.startswith("longfile") else name,
}


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("ftp://h/a/b.dat", "b.dat"),
        ("ftp://h/%C3%A9t%C3%A9%202.nc", "été 2.nc"),
        ("ftp://h/a?b#c", "a?b#c"),
        ("http://h/a.dat?version=/2#top", "a.dat"),
        ("http://h", "download"),
        ("http://h/dir/", "download"),
        ("http://h/a/..", "download"),
        ("http://h/%2e%2e", "download"),
        ("http://h/..%2F..%2Fetc%2Fpasswd", "..%2F..%2Fetc%2Fpasswd"),
        ("http://h/a%5Cb%00c%0Ad%1B[31m 1", "a%5Cb%00c%0Ad%1B[31m 1"),
        ("http://h/100%25%0A", "100%25%0A"),
        ("http://h/100%25 of it", "100% of it"),
        ("http://h/gpj.%E2%80%AEexe", "gpj.%E2%80%AEexe"),
        ("http://h/%FF.dat", "%FF.dat"),
        ("ftp://h/-rf", "-rf"),
    ],
)
def test_the_name_of_a_url(url, name):
    assert file_names.from_url(url) == name
    assert file_names.why_unsafe(name) is None


ODD_NAMES = st.lists(st.sampled_from(["%", "%25", "0", "A", "%0A", "/", "%2F", "é", "%FF", "\x1b"])).map("".join)


@given(ODD_NAMES, ODD_NAMES)
def test_names_that_cannot_be_kept_stay_different_and_can_be_decoded(one, other):
    kept, another = (file_names.from_url(f"http://h/{quote(name, safe='')}") for name in (one, other))
    assert one in ("", kept, unquote(kept))
    assert (kept == another) == (one == other)


@given(st.text(), st.sampled_from(["ftp", "http"]))
def test_name_from_any_url_stays_in_the_directory(path, scheme):
    name = file_names.from_url(f"{scheme}://h/{path}")
    assert os.path.normpath(f"/some/directory/{name}") == f"/some/directory/{name}"
    assert os.path.dirname(f"/some/directory/{name}") == "/some/directory"  # noqa: PTH120
    name.encode()


@pytest.mark.parametrize(
    "name",
    [
        *("", "/etc/passwd", "C:/x", "..", "../x", "a/../x", "a/..", "./x", "a//b", "a/", "."),
        *("a\\b", "a\0", "a\nb", "a\x1b", "x\u202ey"),
        *("x" * 4097, "a/" * 101 + "x"),
    ],
)
def test_unsafe_names(name):
    assert file_names.why_unsafe(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a\nb", "a control character"),
        ("a\u2028b", "a control character"),
        ("a\u202eb", "a character that changes the writing direction"),
        ("a\udce9b", "bytes that are not UTF-8"),
        ("a\\b", "a backslash"),
    ],
)
def test_the_reason_names_the_kind_of_character(name, reason):
    assert file_names.why_unsafe(name) == f"has {reason}"


@pytest.mark.parametrize(
    "name",
    ["x", "a/b/c", "..x", "x..", "a:b", ".hidden", "ünï cödé", "x.coget", "x.coget/journal", "-x", "a/" * 100 + "x"],
)
def test_safe_names(name):
    assert file_names.why_unsafe(name) is None


class Asked:
    """A file system that treats names of equal form as equal, and records the names that it was asked about."""

    def __init__(self, form):
        self.form = form
        self.questions = []

    async def __call__(self, folder, names):
        self.questions.append((folder, tuple(names)))
        first = {}
        return {name: first.setdefault(self.form(name), name) for name in names}


@pytest.mark.parametrize(
    ("names", "refusing"),
    [
        (("x", "y"), ()),
        (("x", "x"), FILE_SYSTEMS),
        (("x", "X"), ("caseless", "upper", "decomposed and caseless")),
        (("a/x", "A/x"), ("caseless", "upper", "decomposed and caseless")),
        (("a/x", "A/y"), ()),
        (("a/B/x", "A/b/X"), ("caseless", "upper", "decomposed and caseless")),
        (("a/b/x", "a/B"), ("caseless", "upper", "decomposed and caseless")),
        (("a/x", "a"), FILE_SYSTEMS),
        (("x", "x.coget"), FILE_SYSTEMS),
        (("x", "X.COGET"), ("caseless", "upper", "decomposed and caseless")),
        (("x", "X.Coget/y"), ("caseless", "upper", "decomposed and caseless")),
        (("\u00e9", "e\u0301"), ("composed", "decomposed and caseless")),
        (("\u00c9", "e\u0301"), ("decomposed and caseless",)),
        (("stra\u00dfe", "STRASSE"), ("caseless", "upper", "decomposed and caseless")),
        (("x", "x."), ("no end",)),
        (("x", "x . "), ("no end",)),
        (("a\u200db", "ab"), ("no width",)),
        (("longfilename.txt", "LONGFI~1.TXT"), ("short",)),
        (("d/longfilename", "d/LONGFI~1.TXT", "e/z"), ("short",)),
        (("\u212a", "k"), ("caseless", "decomposed and caseless")),
        (("\ud800", "x"), ()),
    ],
)
@pytest.mark.parametrize("system", FILE_SYSTEMS)
async def test_two_names_for_one(names, refusing, system):
    asked = Asked(FILE_SYSTEMS[system])
    if system not in refusing:
        await refuse_collisions(names, asked)
        return
    with pytest.raises(UsageError) as caught:
        await refuse_collisions(names, asked)
    assert all(escaped(name) in caught.value.message for name in names[:2])
    assert caught.value.remedy


async def test_file_system_is_asked_about_similar_names_only():
    asked = Asked(str.casefold)
    await refuse_collisions([f"run/{i}.root" for i in range(20_000)], asked)
    assert asked.questions == []
    await refuse_collisions(["a/x", "A/y", "z"], asked)
    assert asked.questions == [("", ("a", "A"))]


async def test_very_many_similar_names_take_no_time():
    letters = [f"{'xX'[i & 1]}{'aA'[i >> 1 & 1]}{i >> 2:012b}".replace("0", "o").replace("1", "O") for i in range(4096)]
    asked = Asked(lambda name: name)
    await refuse_collisions([f"{each}/f" for each in letters], asked)
    assert len(asked.questions) < 10


async def test_very_many_folders_are_too_many():
    names = [f"{i}/{'a/' * 99}x" for i in range(MOST_FOLDERS // 100 + 1)]
    await refuse_collisions(names[:-1], Asked(str))
    with pytest.raises(UsageError, match="more than 100000 directories") as caught:
        await refuse_collisions(names, Asked(str))
    assert caught.value.remedy


async def test_a_server_has_no_partial_data():
    await refuse_collisions(["x", "x.coget"], Asked(str), partial=False)
