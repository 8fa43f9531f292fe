"""Workers carry tasks out: they lease work items, act on servers over kept sessions, and record the results."""
