"""How are endorsements fetched and kept?  Fetch first, verify later: nothing here judges Evidence.

``complete`` fills the gaps of what came with Evidence; the rest are its parts.
"""
