"""Carries pieces between hosts: channels that are kept, a lane for each ordered pair, all of them (`carrier`)."""
