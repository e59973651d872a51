"""How does a machine come by Evidence of itself?  TEE devices, GPUs, event log."""

from attestation.collect.errors import TeeUnavailable
from attestation.collect.tee import GuestTee, open_tee

__all__ = ["GuestTee", "TeeUnavailable", "open_tee"]
