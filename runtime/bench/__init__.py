"""How fast and how good is a model on this machine?  The parts of `starshade bench`."""
