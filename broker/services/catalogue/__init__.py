"""The catalogue: datasets, their replicas, access to the replicas, and reports of bad ones."""
