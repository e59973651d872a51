"""What do clients see when processes are killed, clocks jump, disks fill and strangers crowd in?

Real processes behind real sockets. ``make chaos`` runs the crowds at their full size; what runs in
``make test`` is the same with fewer of them.
"""
