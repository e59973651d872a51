"""The engine and its peers on one machine, in turn: who is faster, by how much, how sure?"""
