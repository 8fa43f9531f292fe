"""Networks, demands and plans as documents: YAML written by users, JSON for programs."""
