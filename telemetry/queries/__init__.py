"""What can be asked?  Functions that return a Select, or values computed from its rows."""
