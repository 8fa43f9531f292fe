"""The least makespan on a network that does not change (Confluence, 2.2), by max-flow or by a linear program."""
