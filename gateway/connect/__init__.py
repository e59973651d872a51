"""How does any program, in any language, speak to an attested gateway?  Through a port of this
machine that verifies and seals for it.
"""
