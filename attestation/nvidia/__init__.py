"""NVIDIA GPUs and NVSwitches: device Evidence, RIM reference values and OCSP answers."""
