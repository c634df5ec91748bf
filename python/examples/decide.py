"""Runs a worker, shows each diff that it asks about, and applies what the user agrees to: python3 decide.py WORKER"""

import sys

from corral import Corral, Question


def ask(question: Question) -> bool:
    print(f"{question.worker} wants to {', '.join(question.operations)} {', '.join(question.paths)}")
    # It comes from a worker: only what can be printed is shown.
    print("\n".join(ascii(line)[1:-1] for line in (question.diff or "").splitlines()))
    return input("Allow it? [y/N] ").strip().lower() == "y"


with Corral() as corral:
    result = corral.run(sys.argv[1], on_question=ask)
    print(result.status, *(f"{change.path}: {change.outcome}" for change in result.changes), sep="\n")
