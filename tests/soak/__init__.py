"""Many short requests with everything that goes wrong: what must still hold at the end?"""
