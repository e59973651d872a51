"""Which token ids does a text have, and which text do ids spell?  All from the model's files."""

from runtime.tokenizer.tokenizer import Tokenizer

__all__ = ["Tokenizer"]
