"""The catalogue: datasets, their replicas, who may read these, and reports of bad ones."""
