"""The least makespan on a network that stays as it is (Confluence, 2.2), by max-flow."""
