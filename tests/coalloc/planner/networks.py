"""Networks and demands that nobody would think of, for tests of planners."""

from hypothesis import strategies as st

from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network

NAMES = "abcdefg"
LIMITS = st.none() | st.integers(1, 50) | st.integers(1, 10**9)


@st.composite
def networks(draw, most: int = 6) -> Network:
    """Up to `most` hosts, t the last, some with several ISPs, disks that limit, or no will to relay."""
    names = [*NAMES[: draw(st.integers(1, most - 1))], "t"]
    hosts = tuple(draw(_hosts(name)) for name in names)
    pairs = [
        LinkKey(a.name, b.name, x.name, y.name)
        for a in hosts
        for b in hosts
        for x in a.isps or (Isp(),)
        for y in b.isps or (Isp(),)
        if a is not b
    ]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=len(pairs)))
    # Everything can get to t, slowly.
    chosen += [key for key in pairs if key.sink == "t" and key not in chosen]
    return Network.of(hosts, tuple(Link(key, draw(st.integers(1, 20) | st.integers(1, 10**10))) for key in chosen))


@st.composite
def _hosts(draw, name: str) -> Host:
    isps = tuple(Isp(f"{name}{i}", draw(LIMITS), draw(LIMITS)) for i in range(draw(st.sampled_from((0, 1, 1, 2)))))
    return Host(name, isps, io=draw(st.none() | LIMITS), relays=draw(st.sampled_from((True, True, True, False))))


@st.composite
def demands(draw, network: Network, replicas: bool = True) -> Demand:
    """Files for t. With disks that limit, only hosts that do not relay have replicas: max-flow wants that."""
    names = list(network.hosts)
    several = [name for name, host in network.hosts.items() if host.io is None or not host.relays] if replicas else []
    files = []
    for number in range(draw(st.integers(1, 5))):
        holders = (draw(st.sampled_from(names)),)
        if len(several) > 1 and draw(st.booleans()):
            holders = tuple(draw(st.lists(st.sampled_from(several), unique=True, min_size=2)))
        size = draw(st.integers(0, 30) | st.integers(0, 10**13))
        files.append(File(f"f{number}", size, holders, ("t",)))
    return Demand(tuple(files))
