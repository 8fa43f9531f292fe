"""Tools of all packages: byte ranges, checksums, addresses, connections, names, output; independent of transfers."""
