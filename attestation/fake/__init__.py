"""A simulated TEE for machines without one.  It protects nothing."""

from attestation.fake.attester import FakeTee as FakeTee
