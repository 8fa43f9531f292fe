"""Workers, which run tasks: they lease work items, carry them out at servers, and record the results."""
