"""Runs a worker over the lines of a file with JSON; prints a line for each result: python3 map_items.py WORKER ITEMS.jsonl"""

import json
import sys
from pathlib import Path

from corral import Corral

worker, file = sys.argv[1:]
items = [json.loads(line) for line in Path(file).read_text().splitlines()]
with Corral() as corral:
    progress = lambda now: print(f"\r{now}", end="", file=sys.stderr)
    for result in corral.map(worker, items, input={"text": "{text}"}, retries=1, on_progress=progress):
        print(json.dumps({"index": result.index, "status": result.status, "output": result.output}))
    print(file=sys.stderr)
