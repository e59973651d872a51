"""Through which doors does a sealed request come in?

OHTTP, EHBP, and TNG's framing of OHTTP; behind each, the same app.
"""
