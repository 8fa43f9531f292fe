"""The most expensive valid or nearly valid requests to a broker, and users who send them.

Before a body is sent, `@@@@@@@@` in it is replaced by a new number of eight digits, so that each request reports
something new.
"""

import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from itertools import count, permutations
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.support.browser import Browser

__all__ = ["REFUSALS", "Attack", "Siege", "attacks", "children", "resident", "seated"]

NEW = b"@@@@@@@@"
OWN = "/broker/v1"
REFUSALS = frozenset({400, 413, 422, 429, 431})
"""Expected statuses of refusals; 400 and 431 are for malformed requests."""
LATE = 120
"""Time limit for an answer in seconds."""
STEP = 1 << 16
PAGES = ("overview", "tasks", "grid", "drift", "forecasters", "regret", "promises", "depots", "decisions", "replicas")
_numbers = count(10_000_000)


class Attack(NamedTuple):
    """A request.

    :param body: body, with `@@@@@@@@` in place of new numbers
    :param kind: content type of the body
    :param pages: whether the request has the cookie of a logged-in browser instead of a token
    """

    name: str
    method: str
    path: str
    body: bytes = b""
    kind: str = "application/json"
    pages: bool = False


def attacks(scale: float = 1.0) -> list[Attack]:
    """Return all attacks.

    :param scale: size of the requests, as a share of the largest size that the broker accepts
    """
    return [*_plans(scale), *_reports(scale), *_questions(scale), *_malformed(scale), *_reading(scale)]


def _attack(name: str, path: str, body: object) -> Attack:
    return Attack(name, "POST", OWN + path, json.dumps(body).encode())


def network(hosts: int, links: int, files: int, more: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return a body of `POST /plans` with random links, and files with three holders each.

    :param more: further keys of each host
    """
    draw = random.Random(hosts)
    names = [f"h{i}" for i in range(hosts)]
    pairs = list(permutations(names, 2))
    draw.shuffle(pairs)
    placed = [draw.sample(names, 4) for _ in range(files)]
    return {
        "hosts": {name: more or {} for name in names},
        "links": {f"{a} -> {b}": draw.randrange(10**6, 10**9) for a, b in pairs[:links]},
        "files": {
            f"f{i}": {"size": draw.randrange(10**9, 10**13), "at": ends[:3], "to": ends[3]}
            for i, ends in enumerate(placed)
        },
    }


def _plans(scale: float) -> Iterator[Attack]:
    yield _attack("largest plan", "/plans", network(200, int(20_000 * scale), int(2_000 * scale)))
    yield _attack("long plan", "/plans", network(200, int(4_000 * scale), int(400 * scale)))
    isps = {"isps": {f"i{k}": {"up": 10**8 + k} for k in range(int(240 * scale))}}
    yield _attack("plan with many ISPs", "/plans", network(200, 0, 1, isps))
    served = {
        "hosts": {f"h{i}": {"url": f"ftp://h{i}.example"} for i in range(100)},
        "files": {"f": {"size": 10**12, "at": [f"h{i}" for i in range(50)], "to": [f"h{i}" for i in range(50, 100)]}},
    }
    yield _attack("plan among servers", "/plans", served)


def _reports(scale: float) -> Iterator[Attack]:
    now = int(time.time())
    observed = [
        {"id": f"@@@@@@@@-{i}", "source": f"ftp://s{i % 999}.example", "sink": "S", "bytes": 10**9 + i}
        | {"started": now - 9_000_000 + i, "ended": now - 8_999_990 + i, "error": "e" * 200}
        for i in range(int(20_000 * scale))
    ]
    yield _attack("20,000 reports", "/transfers", observed)
    line = (
        "DATE=20260521{0:02}{1:02}{2:02}.{3:06} HOST=d@@@@@@@@.example START=20260521000000.000001 USER=u FILE=/f "
        "NBYTES=104857600 VOLUME=/ STREAMS=4 STRIPES=1 DEST=[192.0.2.7] TYPE=RETR CODE=226\n"
    )
    moments = ((i // 3600 % 24, i // 60 % 60, i % 60, i) for i in range(1, int(400_000 * scale)))
    log = "".join(line.format(*each) for each in moments).encode()
    yield Attack("log of another program", "POST", f"{OWN}/transfers/import", log, "text/plain")
    names = "".join(
        json.dumps({"name": f"x:@@@@@@@@/{i}", "size": i, "checksums": {"adler32": f"{i:08x}"}}) + "\n"
        for i in range(int(100_000 * scale))
    ).encode()
    yield Attack("catalogue", "POST", f"{OWN}/import", names, "text/plain")
    files = "".join(
        f'<file name="m@@@@@@@@/{i}"><size>1</size><url>ftp://a.example/{i}</url></file>'
        for i in range(int(500_000 * scale))
    )
    metalink = f'<metalink xmlns="urn:ietf:params:xml:ns:metalink">{files}</metalink>'.encode()
    yield Attack("Metalink", "POST", f"{OWN}/import?format=metalink", metalink, "application/xml")
    part = {"url": "ftp://a.example/f", "bytes": 10**7, "seconds": 1, "flow_seconds": 1, "outcome": "ok"}
    decided = {
        "at": now,
        "kind": "download",
        "thing": "run:000001",
        "bytes": 10**9,
        "moved": 10**9,
        "strategy": "brute",
        "outcome": "ok",
        "seconds": 12,
        "fetch_seconds": 11,
        "range_count": 2_000,
        "sources": [{**part, "source": f"ftp://s{i}.example"} for i in range(100)],
        "ranges": [{"source": i % 100, "start": i, "end": i + 1, "bytes": 1, "asked": i} for i in range(2_000)],
    }
    yield _attack(
        "decisions", "/decisions", [{**decided, "id": f"@@@@@@@@-{i}"} for i in range(max(1, int(30 * scale)))]
    )


def _questions(scale: float) -> Iterator[Attack]:
    names = [f"run:{i % 2000:06}" for i in range(int(10_000 * scale))]
    yield _attack("10,000 names", "/replicas/resolve", {"names": names, "sink": "S"})
    asked = [{"source": f"ftp://s{i % 999}.example", "sink": f"k{i}"} for i in range(int(10_000 * scale))]
    yield _attack("10,000 forecasts", "/forecasts", {"forecasts": asked})
    items = [{"source": f"/a/{i}", "destination": f"/b/{i}"} for i in range(int(100_000 * scale))]
    task = {"submission_id": "00000000-0000-4000-8000-0000@@@@@@@@", "source": "C", "destination": "C", "items": items}
    yield _attack("task", "/tasks", task)


def _malformed(scale: float) -> Iterator[Attack]:
    long = int(40_000_000 * scale)
    for name, body in {
        "numbers": b"[" + b"1," * (long // 2) + b"1]",
        "empty objects": b"[" + b"{}," * (long // 3) + b"{}]",
        "depth": b"[" * (long // 8),
        "a huge number": b'{"names": [' + b"9" * (long // 8) + b"]}",
        "nothing": b"[" + b"{}," * int(49_999 * scale) + b"{}]",
        "names": b"{" + b",".join(b'"%d":0' % i for i in range(long // 16)) + b"}",
    }.items():
        for path in ("/plans", "/transfers", "/replicas/resolve"):
            yield Attack(f"{name} to {path}", "POST", OWN + path, body)


def _reading(scale: float) -> Iterator[Attack]:
    for format in ("csv", "parquet"):
        yield Attack(f"history as {format}", "GET", f"{OWN}/transfers/export?format={format}")
    yield Attack("catalogue out", "GET", f"{OWN}/export")
    for path in ("transfers", "tasks", "datasets", "replicas?dataset=run:000001", "collections", "audit"):
        yield Attack(path, "GET", f"{OWN}/{path}{'&' if '?' in path else '?'}limit=1000")
    yield Attack("metrics", "GET", f"{OWN}/metrics")
    yield Attack("interface", "GET", "/openapi.json")
    for name in PAGES:
        yield Attack(f"report {name}", "GET", f"{OWN}/reports/{name}")
        yield Attack(f"page {name}", "GET", f"/reports/{name}", pages=True)
    for days in (7, 28, 90, 365):
        yield Attack("page forecasters", "GET", f"/reports/forecasters?days={days}", pages=True)
    for i in range(max(2, int(20 * scale))):
        pair = f"source=ftp://s{i}.example&sink=S"
        yield Attack("page pair", "GET", f"/reports/pair?{pair}", pages=True)
        yield Attack("picture", "GET", f"/reports/pair/rates.png?{pair}&since={i + 1}", pages=True)
    yield Attack("picture", "GET", "/reports/overview/moved.png", pages=True)


def seated(url: str, token: str, folder: Path) -> str:
    """Log in with a browser; return the value of its Cookie header."""
    browser = Browser(folder / f"cookies-{next(_numbers)}.json")
    try:
        browser.send(browser.open(f"{url}/reports/overview"), token=token)
        return "; ".join(f"{each.name}={each.value}" for each in browser.client.cookies.jar)
    finally:
        browser.close()


class Siege:
    """Users who send all attacks one after the other, each in another order, and a client that keeps slow connections.

    :param users: token and Cookie header of each user
    :ivar statuses: number of answers, by name of the attack and status; status 0 means no answer
    """

    def __init__(self, url: str, users: Sequence[tuple[str, str]], scale: float = 1.0) -> None:
        self._address = urlsplit(url)
        self._users = users
        self._attacks = attacks(scale)
        self._ended = threading.Event()
        self.statuses: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()
        works: list[Callable[[], None]] = [
            *(lambda number=number: self._send(number) for number in range(len(users))),  # type: ignore[misc]
            self._linger,
        ]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]

    def run(self, seconds: float) -> Mapping[tuple[str, int], int]:
        """Send attacks for a time; return a copy of `statuses`: a thread that gets no answer may still add to it."""
        for each in self._threads:
            each.start()
        self._ended.wait(seconds)
        self._ended.set()
        for each in self._threads:
            each.join(LATE)
        with self._lock:
            return Counter(self.statuses)

    def all_once(self) -> Mapping[tuple[str, int], int]:
        """Send each attack once, from one of the users; return `statuses`."""
        todo = iter(self._attacks)

        def work(number: int) -> None:
            while (attack := self._next(todo)) is not None:
                self._note(attack.name, self._asked(number, attack))

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(self._users))]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return self.statuses

    def _next(self, todo: Iterator[Attack]) -> Attack | None:
        with self._lock:
            return next(todo, None)

    def _note(self, name: str, status: int) -> None:
        with self._lock:
            self.statuses[name, status] += 1

    def _send(self, number: int) -> None:
        mine = self._attacks[:]
        random.Random(number).shuffle(mine)
        while not self._ended.is_set():
            for attack in mine:
                if self._ended.is_set():
                    return
                self._note(attack.name, self._asked(number, attack))

    def _asked(self, number: int, attack: Attack) -> int:
        token, cookies = self._users[number]
        headers = {"Cookie": cookies} if attack.pages else {"Authorization": f"Bearer {token}"}
        if attack.body:
            headers["Content-Type"] = attack.kind
        body = attack.body.replace(NEW, b"%08d" % next(_numbers))
        connection = HTTPConnection(self._address.hostname or "", self._address.port, timeout=LATE)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # the broker has answered before reading everything
                connection.request(attack.method, attack.path, body or None, headers)
            answer = connection.getresponse()
            while answer.read(STEP):
                pass
            return answer.status
        except (OSError, HTTPException):
            return 0
        finally:
            connection.close()

    def _linger(self) -> None:
        """Keep up to a hundred connections nearly idle, with unfinished large bodies and unfinished long headers."""
        token = self._users[0][0]
        begun = f"POST {OWN}/transfers HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        begun += "Content-Type: application/json\r\nContent-Length: 60000000\r\n\r\n["
        long = "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + "x" * 60_000
        open_: list[socket.socket] = []
        try:
            while not self._ended.wait(1):
                for text in (begun + "1," * 2_000_000, long):
                    if len(open_) < 100:
                        try:
                            open_.append(self._connected(text.encode()))
                        except OSError:
                            self._note("slow", 0)
                open_ = [each for each in open_ if self._slow(each)]
        finally:
            for each in open_:
                each.close()

    def _connected(self, data: bytes) -> socket.socket:
        connection = socket.create_connection((self._address.hostname or "", self._address.port or 80), 10)
        connection.sendall(data)
        connection.setblocking(False)
        return connection

    def _slow(self, connection: socket.socket) -> bool:
        try:
            connection.send(b"1")
            return True
        except BlockingIOError:
            return True
        except OSError:
            connection.close()
            return False


def resident(process: int) -> int:
    """Return the resident memory of a process and all its descendants, in bytes."""
    found = 0
    for number in (process, *children(process)):
        with suppress(OSError):  # it has ended
            lines = Path(f"/proc/{number}/status").read_text().splitlines()
            found += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
    return found


def children(process: int) -> list[int]:
    """Return the ids of all descendants of a process."""
    found: list[int] = []
    with suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):
                for child in map(int, (thread / "children").read_text().split()):
                    found += [child, *children(child)]
    return found
