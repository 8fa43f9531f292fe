"""A simple browser: follows redirects, stores cookies in a file, and submits forms. It runs no scripts.

    browser = Browser(tmp_path / "cookies.json")
    page = browser.open(url)                       # the page after all redirects
    page = browser.send(page, token=token)         # submits its form with the first button

    python -m tests.support.browser COOKIES TOKEN URL

opens a page and submits its form, with the token if it has a field for one. `program` makes a value for $BROWSER that
runs this command, for programs that open a browser.
"""

import json
import shlex
import ssl
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import httpx

from tests.support.waiting import PATIENCE

__all__ = ["Browser", "Page", "program"]


class Page(HTMLParser):
    """A web page, with the parts that tests need.

    :param answer: the HTTP response that contains it
    """

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__()
        self.url = str(answer.url)
        self.status = answer.status_code
        self.headers = answer.headers
        self.text = answer.text
        self.fields: dict[str, str] = {}
        self.buttons: list[tuple[str, str]] = []
        self.links: list[str] = []
        self.labels: set[str] = set()
        self.action: str | None = None
        self.words: dict[str, str] = {}
        self._tags: list[str] = []
        self.feed(answer.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self._tags.append(tag)
        if tag == "form":
            self.action = urljoin(self.url, attributes.get("action", ""))
        elif tag == "input":
            self._tags.pop()
            if "name" in attributes:
                self.fields[attributes["name"]] = attributes.get("value", "")
        elif tag == "button" and "name" in attributes:
            self.buttons.append((attributes["name"], attributes["value"]))
        elif tag == "a":
            self.links.append(urljoin(self.url, attributes["href"]))
        elif tag == "label" and "for" in attributes:
            self.labels.add(attributes["for"])

    def handle_endtag(self, tag: str) -> None:
        while self._tags and self._tags.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._tags and data.strip():
            self.words[self._tags[-1]] = self.words.get(self._tags[-1], "") + data.strip()


class Browser:
    """A browser.

    :param cookies: file in which it stores cookies
    """

    def __init__(self, cookies: Path) -> None:
        self._file = cookies
        trusted = ssl.create_default_context()
        self.client = httpx.Client(follow_redirects=True, timeout=PATIENCE, trust_env=False, verify=trusted)
        if cookies.exists():
            for domain, path, name, value in json.loads(cookies.read_text()):
                self.client.cookies.set(name, value, domain, path)

    def open(self, url: str) -> Page:
        """Open a URL; return the page after all redirects."""
        return self._shown(self.client.get(url))

    def send(self, page: Page, button: str = "", **fields: str) -> Page:
        """Submit the page's form; return the page after all redirects.

        :param button: value of the button to press; by default, the first one
        :param fields: values of fields, in addition to those in the page
        """
        assert page.action, page.text
        name, value = next(each for each in page.buttons if each[1] == (button or each[1]))
        return self._shown(self.client.post(page.action, data={**page.fields, **fields, name: value}))

    def _shown(self, answer: httpx.Response) -> Page:
        kept = [(each.domain, each.path, each.name, each.value) for each in self.client.cookies.jar]
        self._file.write_text(json.dumps(kept))
        return Page(answer)

    def close(self) -> None:
        self.client.close()


def program(cookies: Path, token: str) -> str:
    """Write a script that opens a URL with this browser; return a value for $BROWSER that runs it."""
    script = cookies.with_suffix(".sh")
    words = [sys.executable, "-m", "tests.support.browser", str(cookies), token]
    script.write_text(f'#!/bin/sh\ncd {Path(__file__).parents[2]} && exec {shlex.join(words)} "$1"\n')
    script.chmod(0o755)
    return f"{script} %s"


def _run(cookies: str, token: str, url: str) -> None:
    browser = Browser(Path(cookies))
    page = browser.open(url)
    page = browser.send(page, **({"token": token} if "token" in page.fields else {}))
    browser.close()
    print(json.dumps({"url": page.url, "status": page.status, "words": page.words}))


if __name__ == "__main__":
    _run(*sys.argv[1:])
