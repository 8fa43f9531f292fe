"""Transport of pieces between hosts: kept channels, a lane for each ordered pair, and all lanes (`carrier`)."""
