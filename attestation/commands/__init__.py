"""The commands of `starshade attest`, one file each; files and the clock are read here alone."""
