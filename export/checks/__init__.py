"""Does a deployed file say what it should?"""
