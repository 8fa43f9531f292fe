"""Cheng's uploads with TCP, simulated packet by packet: ns-3 transfers the bytes in place of the fluid model.

As in the paper, each hop is a separate TCP connection with its own slow start. TCP is New Reno, queues are tail-drop
with 50 packets, as in ns-2, and the longest round-trip time is about 80 ms. Needs the package `ns3` (extra `bench`).
Its licence is the GPL, so only this file imports it.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

from coalloc.collect.simulation import Capacity, Rate, RateShare, Route
from tests.benchmarks.collecting.transit_stub import ACROSS, BELOW, WITHIN, Edge, TransitStub
from tests.benchmarks.collecting.uploads import Udp, UploadScenario

__all__ = ["Packets"]

STEP = 0.1
"""Seconds between two checks whether a hop is over."""
DELAYS = {WITHIN: "5ms", ACROSS: "10ms", BELOW: "2ms"}
"""One-way delays, by the capacity of the edge."""
QUEUE = "50p"
WINDOW = 32 * 1024
"""Limit of the bytes in flight of a connection: a little more than the bandwidth-delay product of the longest path."""
SEGMENT, UDP_BYTES = 1448, 512
PORT = 5000

Pair = tuple[str, str]


class Packets:
    """A network in ns-3. A process can have only one at a time.

    :raises ImportError: when ns-3 is not installed
    """

    def __init__(self, scenario: UploadScenario, seed: int) -> None:
        from ns import ns

        self._ns: Any = ns
        ns.RngSeedManager.SetSeed(1 + seed)
        defaults = {
            "ns3::TcpL4Protocol::SocketType": ns.StringValue("ns3::TcpNewReno"),
            "ns3::TcpSocket::SegmentSize": ns.UintegerValue(SEGMENT),
            "ns3::TcpSocket::SndBufSize": ns.UintegerValue(WINDOW),
            "ns3::TcpSocket::RcvBufSize": ns.UintegerValue(WINDOW),
        }
        for name, value in defaults.items():
            ns.Config.SetDefault(name, value)
        self._routes = scenario.underlay.routes
        self._port = PORT
        self._build(scenario)
        self._streams: dict[str, Any] = {}
        self._sinks: dict[Pair, tuple[Any, int]] = {}
        self._bases: dict[Pair, int] = {}
        self._sizes: dict[Pair, int] = {}
        self._applications: list[Any] = []
        udp = {each.stream: each for each in scenario.udp}
        for stream in scenario.underlay.streams:
            start, end = _ends(stream.route)
            if stream.name in udp:
                self._on_off(start, end, udp[stream.name])
            else:
                self._streams[stream.name] = self._sink(end)
                self._bulk(start, end, self._port, 0)

    def close(self) -> None:
        """Destroy the network, so that the process can create another one."""
        self._ns.Simulator.Destroy()

    def has(self, pair: Pair) -> bool:
        return pair in self._routes

    def begin(self, pair: Pair, size: int) -> None:
        start, end = _ends(self._routes[pair])
        if pair not in self._sinks:
            self._sinks[pair] = self._sink(end), self._port
        sink, port = self._sinks[pair]
        self._bases[pair] = sink.GetTotalRx()
        self._sizes[pair] = size
        self._bulk(start, end, port, size)

    def end(self, pair: Pair) -> None:
        self._sizes.pop(pair, None)

    def change(self, change: Capacity | Rate | RateShare) -> None:
        raise NotImplementedError(f"ns-3 makes its own weather: {change}")

    def moved(self, name: Pair | str) -> float:
        if isinstance(name, str):
            return float(self._streams[name].GetTotalRx())
        return float(self._sinks[name][0].GetTotalRx() - self._bases[name])

    @property
    def soonest(self) -> float:
        return STEP if self._sizes else inf

    def advance(self, seconds: float) -> list[Pair]:
        self._ns.Simulator.Stop(self._ns.Seconds(seconds))
        self._ns.Simulator.Run()
        return [pair for pair, size in self._sizes.items() if self.moved(pair) >= size]

    def _build(self, scenario: UploadScenario) -> None:
        ns = self._ns
        edges: dict[Edge, float] = {}
        for name, capacity in scenario.underlay.capacities.items():
            start, end = name.split(" -> ")
            edges[start, end] = capacity
        graph = TransitStub(edges)
        names = sorted(graph.nodes)
        container = ns.NodeContainer()
        container.Create(len(names))
        self._nodes = {name: container.Get(number) for number, name in enumerate(names)}
        ns.InternetStackHelper().Install(container)
        addresses = ns.Ipv4AddressHelper()
        addresses.SetBase(ns.Ipv4Address("10.0.0.0"), ns.Ipv4Mask("255.255.255.252"))
        self._hops: dict[Edge, tuple[Any, int]] = {}
        self._own: dict[Edge, Any] = {}
        self._address: dict[str, Any] = {}
        for (start, end), capacity in edges.items():
            if start < end:
                self._join(start, end, capacity, addresses)
        self._known: set[tuple[str, str]] = set()
        for route in (*scenario.underlay.routes.values(), *(stream.route for stream in scenario.underlay.streams)):
            start, end = _ends(route)
            there = graph.route(start, end)
            self._lead(there, self._address[end])
            self._lead(graph.route(end, start), self._own[there[0]])  # the address from which a connection sends

    def _join(self, start: str, end: str, capacity: float, addresses: Any) -> None:
        ns = self._ns
        helper = ns.PointToPointHelper()
        helper.SetDeviceAttribute("DataRate", ns.DataRateValue(ns.DataRate(int(capacity * 8))))
        helper.SetChannelAttribute("Delay", ns.StringValue(DELAYS[capacity]))
        helper.SetQueue("ns3::DropTailQueue", "MaxSize", ns.StringValue(QUEUE))
        devices = helper.Install(self._nodes[start], self._nodes[end])
        interfaces = addresses.Assign(devices)
        ns.TrafficControlHelper().Uninstall(devices)  # the default would put a fair queue before the device's
        addresses.NewNetwork()
        for number, (here, there) in enumerate(((start, end), (end, start))):
            index = self._nodes[here].GetObject[ns.Ipv4]().GetInterfaceForDevice(devices.Get(number))
            self._hops[here, there] = interfaces.GetAddress(1 - number), index
            self._own[here, there] = interfaces.GetAddress(number)
            self._address[here] = interfaces.GetAddress(number)

    def _lead(self, route: Sequence[Edge], address: Any) -> None:
        """Give each node on a path a route to the address at its end."""
        helper = self._ns.Ipv4StaticRoutingHelper()
        for here, there in route:
            if (here, str(address)) not in self._known:
                self._known.add((here, str(address)))
                routing = helper.GetStaticRouting(self._nodes[here].GetObject[self._ns.Ipv4]())
                routing.AddHostRouteTo(address, *self._hops[here, there])

    def _to(self, node: str, port: int) -> Any:
        ns = self._ns
        return ns.InetSocketAddress(self._address[node], port).ConvertTo()

    def _sink(self, node: str) -> Any:
        ns = self._ns
        self._port += 1
        anywhere = ns.InetSocketAddress(ns.Ipv4Address.GetAny(), self._port).ConvertTo()
        sinks = ns.PacketSinkHelper("ns3::TcpSocketFactory", anywhere).Install(self._nodes[node])
        sinks.Start(ns.Simulator.Now())
        return sinks.Get(0)

    def _bulk(self, start: str, end: str, port: int, size: int) -> None:
        ns = self._ns
        helper = ns.BulkSendHelper("ns3::TcpSocketFactory", self._to(end, port))
        helper.SetAttribute("MaxBytes", ns.UintegerValue(size))
        sender = helper.Install(self._nodes[start])
        sender.Start(ns.Seconds(0))
        self._applications.append(sender)

    def _on_off(self, start: str, end: str, udp: Udp) -> None:
        ns = self._ns
        helper = ns.OnOffHelper("ns3::UdpSocketFactory", self._to(end, PORT))
        rate = max(1, int(udp.rate * 8))
        helper.SetAttribute("DataRate", ns.DataRateValue(ns.DataRate(rate)))
        helper.SetAttribute("PacketSize", ns.UintegerValue(UDP_BYTES))
        for name, mean in (("OnTime", udp.on), ("OffTime", udp.off)):
            helper.SetAttribute(name, ns.StringValue(f"ns3::ExponentialRandomVariable[Mean={mean}]"))
        self._applications.append(helper.Install(self._nodes[start]))


def _ends(route: Route) -> Edge:
    edges = [edge.split(" -> ") for edge in route]
    return edges[0][0], edges[-1][1]
