"""The restrictions of a systemd unit on a command, without systemd: mounts, user, capabilities, system calls.

    command = [*confined(UNIT, state, writable=[directory]), "coget-broker", "serve"]

The directory `state` contains the unit's StateDirectory (`lib`), CacheDirectory (`cache`) and `credentials`. Only some
settings of a unit are imitated; of the mounts: the read-only root, the unit's own directories, and hidden home
directories.
"""

import ctypes
import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

__all__ = ["USER", "confined", "said", "system_calls"]

USER = 64990
HOUSE = Path(__file__).parents[2]
ALLOW, REFUSE, NO_FAMILY, EQUAL = 0x7FFF0000, 0x00050001, 0x00050061, 4
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
KERNELS = ("/proc", "/sys", "/dev")
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38


def said(unit: Path, name: str) -> list[str]:
    """Return all values of a setting in a unit."""
    return re.findall(f"^{name}=(.*)$", _text(unit), re.MULTILINE)


@cache
def _text(unit: Path) -> str:
    """Return the text of a unit, cached because the mounts hide the file."""
    return unit.read_text()


def confined(unit: Path, state: Path, writable: Sequence[Path] = ()) -> list[str]:
    """Return a command prefix that confines the command after it. Skip the test without root or mounts.

    :param writable: paths for `ReadWritePaths=` of a drop-in
    """
    import pytest  # the confined process needs no pytest, whose import takes long

    if os.geteuid() != 0:
        pytest.skip("only root can make the mounts of a unit")
    words = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.support.confined"]
    words = ["env", "-C", str(HOUSE), *words, str(unit), str(state), ":".join(map(str, writable))]
    credentials = state / "credentials"
    for folder in (state / "lib", state / "cache", credentials):
        folder.mkdir(exist_ok=True)
    for path in (state / "lib", state / "cache", credentials, *credentials.iterdir(), *writable):
        os.chown(path, USER, USER)
    mount = ["unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "tried", "/mnt"]
    tried = subprocess.run(mount, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"nothing can be mounted here: {tried.stderr.strip()}")
    return words


def system_calls(unit: Path) -> set[str]:
    """Return the system calls that a unit allows."""
    allowed: set[str] = set()
    for line in said(unit, "SystemCallFilter"):
        named = {each for word in line.lstrip("~").split() for each in _expanded(word)}
        allowed = allowed - named if line.startswith("~") else allowed | named
    return allowed


def _expanded(word: str) -> Iterator[str]:
    if not word.startswith("@"):
        yield word
        return
    for each in _groups()[word]:
        yield from _expanded(each)


@cache
def _groups() -> dict[str, list[str]]:
    """Return the members of each group of system calls that systemd knows."""
    listed = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True)
    groups: dict[str, list[str]] = {}
    for line in listed.stdout.splitlines():
        if line.startswith("@"):
            members = groups[line.strip()] = []
        elif (each := line.strip()) and not each.startswith("#"):
            members.append(each)
    return groups


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def _folders(unit: Path, state: Path) -> dict[str, Path]:
    """Return the unit's own directories: by path in the unit, the directory on this machine."""
    own = {f"/var/lib/{each}": state / "lib" for each in said(unit, "StateDirectory")}
    return own | {f"/var/cache/{each}": state / "cache" for each in said(unit, "CacheDirectory")}


def _mounts(unit: Path, state: Path, writable: Sequence[Path]) -> None:
    kept, own = [HOUSE, state / "credentials", *writable], _folders(unit, state)
    _mount("-t", "tmpfs", "kept", "/mnt")
    for i, path in enumerate([*kept, *own.values()]):
        Path(f"/mnt/{i}").mkdir()
        _mount("--bind", path, f"/mnt/{i}")
    if said(unit, "ProtectSystem") == ["strict"]:
        places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for place in places:
            if not place.startswith((*KERNELS, "/mnt")):
                _mount("-o", "remount,bind,ro", place)
    homes = {"yes": ["/home", "/root"]}.get("".join(said(unit, "ProtectHome")), [])
    for place in ["/tmp", "/var/tmp", "/var/lib", "/var/cache", *homes]:
        _mount("-t", "tmpfs", "-o", "mode=1777" if "tmp" in place else "mode=755", "own", place)
    for i, path in enumerate(kept):
        if not path.exists():
            path.mkdir(parents=True)
        _mount("--bind", f"/mnt/{i}", path)
        if path not in writable:
            _mount("-o", "remount,bind,ro", path)
    for i, place in enumerate(own, len(kept)):
        Path(place).mkdir()
        _mount("--bind", f"/mnt/{i}", place)
    subprocess.run(["umount", "--recursive", "--lazy", "/mnt"], check=True)
    for place in ("/var/lib", "/var/cache"):
        _mount("-o", "remount,ro", place)


def _drop(unit: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if said(unit, "CapabilityBoundingSet") == [""]:
        for each in range(64):
            if libc.prctl(PR_CAPBSET_DROP, each, 0, 0, 0) and ctypes.get_errno() != errno.EINVAL:  # EINVAL: no such one
                raise OSError(ctypes.get_errno(), f"capability {each} cannot be dropped")
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    if said(unit, "NoNewPrivileges") == ["yes"] and libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "NoNewPrivileges cannot be set")
    os.umask(int(next(iter(said(unit, "UMask")), "022"), 8))


class _Compared(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


def _filter(allowed: set[str], families: set[int]) -> None:
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(REFUSE))
    number = library.seccomp_syscall_resolve_name
    for name in sorted(allowed - {"socket"}):
        if (found := number(name.encode())) >= 0:
            library.seccomp_rule_add(context, ctypes.c_uint32(ALLOW), found, 0)
    for family in range(46):
        action = ctypes.c_uint32(ALLOW if family in families else NO_FAMILY)
        compared = (_Compared * 1)(_Compared(0, EQUAL, family, 0))
        library.seccomp_rule_add_array(context, action, number(b"socket"), 1, compared)
    if library.seccomp_load(context):
        raise OSError("the filter of system calls cannot be loaded")


def _main(unit: Path, state: Path, writable: Sequence[Path], command: Sequence[str]) -> None:
    allowed = system_calls(unit)
    families = {FAMILIES[each] for line in said(unit, "RestrictAddressFamilies") for each in line.split()}
    _mounts(unit, state, writable)
    given = [each for line in said(unit, "Environment") for each in line.split()]
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= dict(each.replace("%d", str(state / "credentials")).split("=", 1) for each in given)
    kinds = {"lib": "STATE_DIRECTORY", "cache": "CACHE_DIRECTORY"}
    environment |= {kinds[folder.name]: place for place, folder in _folders(unit, state).items()}
    os.chdir(next(iter(said(unit, "WorkingDirectory")), "/"))
    _drop(unit)
    _filter(allowed, families)
    os.execvpe(command[0], list(command), environment)


if __name__ == "__main__":
    _, file, folder, paths, *words = sys.argv
    _main(Path(file), Path(folder), [Path(each) for each in paths.split(":") if each], words)
