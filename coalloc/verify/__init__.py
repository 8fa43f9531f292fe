"""Verification of fetched bytes, and search for the sources of wrong bytes, by checksums; it fetches no data."""

from coalloc.verify.at_server import AtSink
from coalloc.verify.blame import agreed_checksum, expectation
from coalloc.verify.verification import Verification
from coalloc.verify.witnesses import WitnessServers

__all__ = ["AtSink", "Verification", "WitnessServers", "agreed_checksum", "expectation"]
