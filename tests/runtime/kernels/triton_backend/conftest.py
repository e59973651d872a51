"""Triton kernels run here by its interpreter, which must be chosen before the import."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")  # noqa: TID251 - triton reads nothing else
