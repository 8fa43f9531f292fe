"""Promised finish times and rates: how likely they are, and what is needed to keep them. Pure.

For rates, a caller adds the bytes of each path to its `samples.PathSamples`, about twice in each window, and says
whether a limit was in force. It divides the paths into groups (`sharing.shared_groups`, `groups.PathGroup`) and asks
`admission.admit`. When a contract has ended, its windows make a `contracts.ContractResult`, which the errors of the
group learn. `changes.ChangeTest` says when it is time to ask again.
"""

__all__ = ["LOOK"]

LOOK = 1.0
"""Seconds between two looks at a transfer, at which its forecast is renewed and more sources may be added."""
