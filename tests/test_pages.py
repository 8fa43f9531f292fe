"""The pages of the docs for users: all commands work as printed, and print what the page shows.

The commands of a page are typed into one shell, in the world of `tests.support.world`. Each ends with status 0, or with
another one if the page shows an error. A command that cannot run here is in `LEFT`, with the reason.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.pages import blocks
from tests.support.reader import Reader, Script
from tests.support.site import Site
from tests.support.world import World

HOUSE = Path(__file__).parents[1]
PAGES = sorted([*HOUSE.glob("docs/howto/*.md"), *HOUSE.glob("docs/tutorials/*.md"), HOUSE / "README.md"])
LEFT = {
    "coget 'osdf:": "needs a federation; tests/coalloc/resolve/test_pelican.py has one",
    "coget osdf:": "needs a federation; tests/coalloc/resolve/test_pelican.py has one",
    "coget pelican:": "needs a federation; tests/coalloc/resolve/test_pelican.py has one",
    "coget 'doi:": "needs a catalogue; tests/coalloc/resolve/test_catalogues.py has some",
    "coget --broker https://broker.example cog": "needs a catalogue; tests/coalloc/resolve/test_catalogues.py has some",
    "coget collect az:": "needs a cloud; tests/servers/test_clouds.py has emulators",
    "coget gs:": "needs a cloud; tests/servers/test_clouds.py has emulators",
    "coget -r gs:": "needs a cloud; tests/servers/test_clouds.py has emulators",
    "coget collect davs:": "needs WebDAV and S3; tests/coalloc/collect/test_read_only_servers.py has them",
    "coget drs:": "needs a catalogue; tests/coalloc/resolve/test_catalogues.py has some",
    "coget esgf:": "needs a catalogue; tests/coalloc/resolve/test_catalogues.py has some",
    "coget get -r doi:": "needs a catalogue; tests/coalloc/resolve/test_catalogues.py has some",
    "coget rucio:": "needs a catalogue; tests/coalloc/resolve/test_catalogues.py has some",
    "coget history import --globus": "needs a registration at globus.org",
    "coget-broker demo": "takes long; tests/broker/deployment/test_demo.py starts it",
    "coget-broker subject assign": "needs a database from before table version 0012",
    "coget-broker worker --via depot-a ...": "tests/broker/worker has workers with depots",
    "curl --cert proxy.pem -X POST": "needs dCache or XRootD",
    "docker ": "tests of the images are in tests/broker/deployment",
    "export TAPE=$(globus ": "needs a broker; the pages globus.md and reference/globus.md run such commands",
    ".venv/bin/python -m ": "`make test` runs these checks and tests",
    "import dask": "needs the extra `hosts`; tests/coalloc/plugins/test_data_tools.py has it",
    "import fsspec\nimport xarray": "needs the extra `hosts`; tests/coalloc/plugins/test_data_tools.py has it",
    "import pandas": "needs the extra `hosts`; tests/coalloc/plugins/test_data_tools.py has it",
    "make ": "takes minutes",
    "apt-get install ./dist/": "needs root; tests/packaging/test_debian.py installs the package",
    "pip install ": "needs a package index",
    "pipx install ": "needs a package index",
    "rucio": "needs Rucio; tests/broker/globus/test_rucio.py runs the commands of its page",
    "sh add-collection.sh ": "needs Rucio; tests/broker/globus/test_rucio.py runs the commands of its page",
    "sudo ": "tests of the prompt are in tests/testbed/test_prompt.py",
    "uv tool install ": "needs a package index",
    "with Wan(": "tests/testbed/test_wan.py does this",
}
"""Commands that are not executed, by their beginning, with the reason."""

OF_THE_READER = {"HOME", "PATH", "PWD"}
"""Variables that a shell has from its beginning."""
SET = re.compile(r"(?:^|[\s(;])([A-Z][A-Z_]*)=")
USED = re.compile(r"\$\{?([A-Z][A-Z_]*)")

FAIL = (
    "coget -i list.txt",  # it names files that do not exist
    "coget doctor --via depot-a.example,depot-b.example",  # it finds that there is no second depot
)
"""Commands that end with an error, in addition to those below which the page shows one."""

FILES = """
printf 'The quick brown fox jumps over the lazy dog' > /x
mkdir -p /run1 /run2 /data/archive/public /data/2024 /pool /scratch/data /store
head -c 300000 /dev/urandom > /run1/x.root
cp /run1/x.root /x.root; cp /run1/x.root /data; cp /run1/x.root /run2/y.root; cp /x /extra.root; cp /x /data
cp /x /data/2024/x.root; cp /x /data/archive/a.root; cp -r /run1 /data/archive/public; cp -r /run1 /data/archive
tar cf /x.tar -C / x x.root
seq 1000 > /x.csv; cp /x.root /y.root; cp /x.root /big.root; cp /x.tar /dataset.tar; cp /x.root /film.mp4
cp /x.root /store; cp /x.root /data/run1.root
"""
"""Commands that make the files of the servers."""

NETWORK = """
printf '%s\n' 'hosts:' '  a: {url: ftp://a.example/scratch/}' '  desk: {}' 'links:' '  a -> desk: 1 Gbit/s' > net.yaml
"""

GLOBUS = """
export GLOBUS_SDK_ENVIRONMENT=broker GLOBUS_SDK_VERIFY_SSL=$SSL_CERT_FILE
export GLOBUS_SDK_SERVICE_URL_AUTH=https://broker.example/ GLOBUS_SDK_SERVICE_URL_TRANSFER=https://broker.example/
"""
AS_ADMIN = """
coget-broker client create desk --role admin > client
export GLOBUS_CLI_CLIENT_ID=$(cut -d' ' -f1 client) GLOBUS_CLI_CLIENT_SECRET=$(cut -d' ' -f2 client)
"""
BY_A_CURATOR = """
coget-broker token create carol --role curator > carol
mkdir -p carol-config/coget
printf '"broker.example" = "%s"' $(cat carol) > carol-config/coget/tokens.toml
chmod 600 carol-config/coget/tokens.toml
cp ~/.config/coget/config.toml carol-config/coget
XDG_CONFIG_HOME=$PWD/carol-config coget register cms:a.root gsiftp://dtn1.example/data/archive/a.root
"""
HISTORY = """
for source in gsiftp://dtn1.example ftp://b.example; do
    for number in $(seq 20); do
        began=$(($(date +%s) - 100 * $number))
        printf '{"id": "%s", "source": "%s", "sink": "CERN", "bytes": 10000000000, ' "$source-$number" $source
        printf '"started": %s, "ended": %s},\\n' $began $(($began + 50 + $number % 3))
    done
done > reports
curl -H "Authorization: Bearer $ANN_TOKEN" https://broker.example/broker/v1/transfers \\
     --json "[$(sed '$s/,$//' reports)]"
"""

KEY = "MDEy" * 8

METALINKS = """
coget plan --metalink ftp://a.example/x > dataset.meta4
cp dataset.meta4 /
mkdir data
cat > /dataset.metalink << END
<metalink version="3.0" xmlns="http://www.metalinker.org/">
    <files><file name="x"><resources><url type="https">https://a.example/x</url></resources></file></files>
</metalink>
END
"""
LISTS = """
printf 'https://a.example/%s\n' x.root y.root x17.dat x18.dat > list.txt
cp /x /2024.dat; echo https://a.example/2024.dat > urls.txt
"""
TOKENS = """
echo t0ken > ~/.my-token
echo 'X-Api-Key: k' > key.txt
chmod 600 ~/.my-token key.txt
"""
BUCKET = """
export AWS_ENDPOINT_URL=https://mirror.example AWS_EC2_METADATA_DISABLED=true
folder=/noaa-goes16/ABI-L2-CMIPF/2024/001/00
mkdir -p $folder && cp /x.root $folder/file.nc && cp /x.root /file.nc
"""

POSTGRES = f"""
set -e
echo secret > client_secret; echo whsec_{KEY} > hook; chmod 600 client_secret hook
cat > replicas.json <<< '{{"scope": "run1", "name": "x", "bytes": 43, "adler32": "5bdc0fda",
    "rses": {{"dtn1": ["gsiftp://dtn1.example:2811/data/x"]}}, "states": {{"dtn1": "AVAILABLE"}}}}'
sed -i ':a;N;s/\\n */ /;ta' replicas.json
install -d -o nobody /tmp/postgres
postgres() {{
    setpriv --reuid=nobody --clear-groups /usr/lib/postgresql/*/bin/$1 -D /tmp/postgres "${{@:2}}" > /dev/null
}}
postgres initdb --no-sync --auth=trust --encoding=UTF8 --locale=C.UTF-8 --username=broker
postgres pg_ctl start --wait -l /tmp/postgres/log -o '-k /tmp -c fsync=off'
export PGHOST=db.example PGUSER=broker
set +e
"""
SSH = """
mkdir -p ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
cat ~/.ssh/id_ed25519.pub >> /etc/ssh/authorized_keys
echo "host.example $(cat /etc/ssh/ssh_host_ed25519_key.pub)" > ~/.ssh/known_hosts
for name in ftp c; do
    curl -X PUT https://broker.example/broker/v1/endpoints/$name -H "Authorization: Bearer $ADMIN_TOKEN" \\
        --json '{"name": "'$name'", "site": "CERN", "scheme": "ftp", "host": "'$name'.example", "prefix": "/"}'
done
"""

BEFORE = {
    "broker": POSTGRES,
    "depots": SSH,
    "batches": "printf 'x x.root' > names",
    "collect": NETWORK,
    "collections": GLOBUS + AS_ADMIN + BY_A_CURATOR,
    "credentials": TOKENS,
    "deadlines": f"{GLOBUS}globus login\n{HISTORY}",
    "gsiftp": "cp -r /etc/grid-security/certificates ~",
    "many-files": LISTS,
    "metalink": METALINKS,
    "pipes": "player() { cat > /dev/null; }",
    "python": "mkdir data",
    "reports": "touch smtp-password; chmod 600 smtp-password; echo secret > smtp-password",
    "rucio": "coget-broker upgrade",
    "s3": BUCKET,
}
"""Commands that make what a page takes for granted."""

CTRL_C = """
if [ "$INTERRUPTED" ]; then
    coget $A $B -o second.bin
else
    until [ "$INTERRUPTED" ]; do
        rm -rf second.bin*
        coget $A $B -o second.bin & COGET=$!
        until [ -e second.bin ] || [ $(du -s second.bin.coget 2> /dev/null | cut -f1) -gt 9999 ]; do sleep 0.01; done
        kill -INT $COGET
        wait $COGET || INTERRUPTED=yes
    done
    false
fi
"""
"""A reader who presses Ctrl-C in the middle of a download. The download may end before; then it is repeated."""

AT_A_SITE = {"collections", "deadlines", "depots", "fsspec", "globus", "hand-over", "monitoring", "reports"}
"""Pages for users of a broker that runs."""

SLOW = AT_A_SITE | {"broker", "collect", "first-download", "plan"}
"""Pages that take long, four fifths of all the time: `make test` types one of them, `make test-long` the others."""

OWN_BROKERS = {"README", "broker"}
"""Pages that start brokers, at the same port."""

LOGIN = """
[[issuer]]
url = "https://iam.example/"
audience = ["https://broker.example"]
roles = { "/atlas" = "reader" }
[login]
issuer = "https://iam.example/"
client_id = "..."
"""

TO_CONFIG = """(echo '[depots."depot-a.example:4000"]'; cat ticket) >> ~/.config/coget/tokens.toml"""

LISTENING = "until [ $(ss -ltn | grep -c ':700[12] ') = {} ]; do sleep 0.05; done"
"""A reader takes longer for the next command than a server to start."""

INSTEAD: dict[str, dict[str, str]] = {
    "broker": {
        "TOKEN=...": "TOKEN=$(cat coget-broker.sqlite.admin-token)",  # no terminal
        "/run/secrets/": "",  # beside the file
        "[login]\n": LOGIN,
        "[notify]\nsecret_file": '[notify]\nurl = "https://hook.example/coget"\nsecret_file',
        "--database URL": "--database sqlite:///coget-broker.sqlite",
        "whsec_...": "whsec_" + KEY,
    },
    "collections": {"TOKEN=...": "TOKEN=$ADMIN_TOKEN"},
    "deadlines": {"TOKEN=...": "TOKEN=$ANN_TOKEN", "14:05": "'+10 min'"},
    "depots": {
        "ADMIN=...": "ADMIN=$ADMIN_TOKEN",
        "TOKEN=...": "TOKEN=$ANN_TOKEN",
        "--user ann --destinations ftp.example": "--user ann --destinations ftp.example > ticket; " + TO_CONFIG,
        # The same depot serves the programs of the next section; the server names 192.0.2.7 for its data.
        "--destinations c.example:50000-51000": "--destinations 11.0.0.0/8 --destinations 192.0.2.7",
        "lftp -c": "rm x; lftp -c",  # coget has fetched this file before
        "--client 192.0.2.7": "--client 192.0.2.7 > ticket",
        "t1....@": "$(sed -n 's/^ticket = \"\\(.*\\)\"/\\1/p' ticket)@",
        '("0123...")': '("01" * 32)',
    },
    "globus": {
        "ID=... ": "ID=$(cut -d' ' -f1 client) ",
        "SECRET=...": "SECRET=$(cut -d' ' -f2 client)",
        "--role admin": "--role admin > client",
        "--role transfer": "--role transfer > client",
        "client_id=ID": "client_id=open('client').read().split()[0]",
        "client_secret=SECRET": "client_secret=open('client').read().split()[1]",
        "/path/ca.pem": "/etc/ssl/certs/ca-certificates.crt",
    },
    "globus-https": {
        "python3 globus_token.py": """python3 -c 'import os; os.fchmod(1, 0o600); print("t0ken")'""",
    },
    "tutorials/depots": {
        "100M": "10M",  # to save time
        "& SERVER=$!": "& SERVER=$!; " + LISTENING.format(1),
    },
    "probe": {"coget probe": "coget probe --bytes 1MB"},  # to save time
    "first-download": {
        "1G": "256M",  # to save time
        "7002 &": "7002 & " + LISTENING.format(2),
        "seek=700000000": "seek=200000000",
        "coget $A $B -o second.bin": CTRL_C,
    },
}
"""Texts of commands that are replaced."""


def name(page: Path) -> str:
    return f"tutorials/{page.stem}" if page.parent.name == "tutorials" and page.stem == "depots" else page.stem


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    (nginx,) = (block.text for block in blocks(HOUSE / "docs/howto/broker.md") if block.language == "nginx")
    with World(tmp_path_factory.mktemp("world"), nginx) as made, closing(made.shell("maker")) as shell:
        assert shell.run(f"set -e; {FILES}") == 0
        yield made


@pytest.fixture(scope="module")
def site(world: World) -> Iterator[Site]:
    with closing(Site(world)) as made:
        yield made


@pytest.fixture
def typed(world: World, site: Site) -> Callable[[Path], None]:
    """A function that types a page."""

    def read(page: Path) -> None:
        user = name(page).replace("/", "-")
        if user in OWN_BROKERS:
            site.stop()
        with closing(site.shell(user) if user in AT_A_SITE else world.shell(user)) as shell:
            script = Script(BEFORE.get(name(page), "true"), INSTEAD.get(name(page), {}), tuple(LEFT), FAIL)
            Reader(shell, page, world.shared / user, script).read()

    return read


@pytest.mark.parametrize("page", [page for page in PAGES if name(page) not in SLOW], ids=name)
def test_a_page_works_as_printed(page, typed):
    typed(page)


@pytest.mark.sampled(len(SLOW))
@pytest.mark.parametrize("page", [page for page in PAGES if name(page) in SLOW], ids=name)
def test_a_long_page_works_as_printed(page, typed):
    typed(page)


@pytest.mark.parametrize("page", [HOUSE / "README.md", *sorted(HOUSE.glob("docs/*/*.md"))], ids=name)
def test_a_page_sets_each_variable_before_it_uses_it(page):
    known = set(OF_THE_READER)
    for block in blocks(page):
        for line in block.text.splitlines() if block.kind == "commands" else ():
            known |= set(SET.findall(line))
            assert set(USED.findall(line)) <= known, line


def test_no_reason_is_given_for_a_command_that_no_page_has():
    found = [block for page in PAGES for block in blocks(page)]
    texts = [text for block in found for text in (block.commands if block.kind == "commands" else [block.text])]
    assert [each for each in (*LEFT, *FAIL) if not any(text.startswith(each) for text in texts)] == []
