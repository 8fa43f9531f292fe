"""Plans as documents of plain values, for JSON."""

from collections.abc import Mapping
from fractions import Fraction
from math import isfinite
from typing import Any

from coalloc.planner.network import LinkKey, Network
from coalloc.planner.results import Limit, TransferPlan

__all__ = ["answer"]


def answer(network: Network, plan: TransferPlan) -> dict[str, Any]:
    """Return a plan and its certificate as a document. Exact numbers are strings such as "640/3"; others are floats.

    :param network: the network that the plan was made for
    """
    return {
        "method": plan.method,
        "seconds": float(plan.makespan),
        "direct_seconds": None if plan.direct is None else float(plan.direct),
        "chance": plan.chance,
        "reason": plan.reason,
        "paths": [
            {"file": path.file, "hosts": list(path.hosts), "bytes": path.bytes, "rate": _rate(path.bytes, plan)}
            for path in plan.paths
        ],
        "flows": [
            {**_ends(key), "bytes": float(flow), "rate": _rate(flow, plan), "capacity": network.links[key].capacity}
            for key, flow in plan.flows.items()
        ],
        "certificate": _certificate(plan),
    }


def _rate(flow: Fraction | int, plan: TransferPlan) -> float:
    return float(flow / plan.makespan) if plan.makespan else 0.0


def _ends(key: LinkKey) -> dict[str, str]:
    isps = {"source_isp": key.source_isp, "sink_isp": key.sink_isp}
    return {"source": key.source, "sink": key.sink, **{name: isp for name, isp in isps.items() if isp}}


def _certificate(plan: TransferPlan) -> dict[str, Any]:
    """Return the document of a `coalloc.planner.results.Certificate`."""
    caution = plan.certificate.caution
    return {
        "seconds": str(plan.makespan),
        "limits": [
            {**_limit(limit), "price": str(price)}
            for limit, price in sorted(plan.certificate.prices.items(), key=_limit_text)
        ],
        "origins": [
            {"file": file, "host": host, "bytes": str(count)}
            for (file, host), count in plan.certificate.origins.items()
        ],
        "tolerance": str(plan.certificate.tolerance),
        "caution": None if caution is None else {"direct": caution.direct, "relayed": _finite(caution.relayed)},
    }


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None


def _limit_text(item: tuple[Limit, Fraction]) -> str:
    return str(item[0])


def _limit(limit: Limit) -> Mapping[str, str]:
    match limit:
        case Limit("link", LinkKey() as key):
            return {"kind": "link", **_ends(key)}
        case Limit(kind, (host, isp)):
            return {"kind": kind, "host": host, **({"isp": isp} if isp else {})}
        case Limit("io", host):
            return {"kind": "io", "host": str(host)}
        case _:
            return {"kind": limit.kind, **({"name": str(limit.of)} if limit.of else {})}
