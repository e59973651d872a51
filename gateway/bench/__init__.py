"""What does the whole product do, measured from its own HTTPS port?"""
