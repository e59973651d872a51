"""How long does a test wait for what has to come?  It takes so long only where it fails."""

PATIENCE_S = 60.0  # a loaded machine may be slow
