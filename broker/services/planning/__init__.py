"""Plans of transfers: of one dataset from its replicas, and of many files through a network."""
