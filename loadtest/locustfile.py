"""What does Locust load?  The user of one planned run, and nothing else."""

from loadtest.users import ChatUser

__all__ = ["ChatUser"]
