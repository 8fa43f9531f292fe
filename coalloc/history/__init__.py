"""The results of this user's transfers, measured links, and logs of other programs (`formats`)."""
