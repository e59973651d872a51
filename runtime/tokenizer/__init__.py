"""Which token ids does a text have, and which text do ids spell?  All from the model's files."""

from runtime.tokenizer.folder import parse_folder_tokenizer
from runtime.tokenizer.tokenizer import Tokenizer

__all__ = ["Tokenizer", "parse_folder_tokenizer"]
