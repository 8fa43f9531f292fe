"""Are these the right bytes, and if not, whose are wrong? Asks servers for checksums; moves no data."""

from coalloc.verify.blame import agreed_checksum, blame, blame_by_pieces, expectation
from coalloc.verify.compare import Comparison
from coalloc.verify.jury import Jury

__all__ = ["Comparison", "Jury", "agreed_checksum", "blame", "blame_by_pieces", "expectation"]
