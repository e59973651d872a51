"""What is wrong with this set-up, and what to do next?

Looking changes nothing: no file is made, no schema brought up to date, nothing is fetched.
"""
