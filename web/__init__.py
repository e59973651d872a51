"""The observatory: what happened, how fast, and on whose word?  `web.app.create_app` serves it."""
