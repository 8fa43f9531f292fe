"""The broker's configuration: its settings (`settings`), and the parts of its TOML file."""
