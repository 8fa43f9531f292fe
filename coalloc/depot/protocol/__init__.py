"""Messages between clients, depots and servers, as functions of bytes: session headers, SOCKS5, HTTP CONNECT. Pure."""
