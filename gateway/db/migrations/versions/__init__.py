"""One file per schema change, oldest first by number."""
