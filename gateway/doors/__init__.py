"""Through which doors does a sealed request come in?  OHTTP and EHBP; behind each, the same app."""
