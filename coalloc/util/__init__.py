"""Tools of all rooms: byte ranges, checksums, addresses, connections, names, output. They know nothing of transfers."""
