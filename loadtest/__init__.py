"""Load against the gateway, and what makes its numbers believable.

Importing Locust patches the whole process, so only ``locustfile`` and ``users`` import it, and both
run in a subprocess of their own.
"""
