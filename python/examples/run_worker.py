"""Runs a worker with a file and prints what it answered: python3 run_worker.py WORKER FILE"""

import sys

from corral import Corral, Refused

worker, file = sys.argv[1:]
with Corral() as corral:
    try:
        result = corral.run(worker, attachments=[file], timeout=300)
    except Refused as error:
        sys.exit(f"refused: {error}\n" + "\n".join(f"- {one['message']}" for one in error.violations))
    print(result.stdout, end="")
    if result.changeset_id is not None:
        print(f"waits for a decision: {result.changeset_id}", file=sys.stderr)
    sys.exit(0 if result.ok else f"{result.status}: {result.error and result.error.message}")
