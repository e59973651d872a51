"""What happens when somebody between gateway and worker interferes?  Shown on this machine.

Worker, gateway and dashboard are the real ones; the attacker sits on the socket between gateway and
worker, where he can read and change all that passes.
"""
