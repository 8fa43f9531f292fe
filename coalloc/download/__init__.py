"""One file from several replicas, to this machine's disk (`to_disk`) or to another server (`to_server`)."""
