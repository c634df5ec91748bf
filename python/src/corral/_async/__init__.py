"""The client for asyncio, from which generate.py makes the one that blocks."""
