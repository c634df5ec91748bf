"""The client that blocks. Made by generate.py from the files in _async."""
