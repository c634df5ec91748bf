"""Turns the one file of this container, /attachments/file, into what the first argument says, in the folder that the input names.

What the file is comes from its content. The verdict is one line of JSON on standard output; a file from which nothing can be made ends with
status 1, a reason in words on standard error, and without its folder. With `verdict_is_result` such a verdict ends with status 0 if it would be
the same again: then it is not found out twice.
"""

import json
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

from work import NotPossible, Work  # noqa: E402  (beside this file, which is in no package)

FILE = "/attachments/file"


def chapter(target):
    """Only what a target needs is loaded: most of the time of a short text would else be this."""
    if target == "text":
        import texts

        return texts.write_text
    if target == "facts":
        import facts

        return facts.write_facts
    if target == "parts":
        import parts

        return parts.write_parts
    import pages

    return {
        "pdf": pages.write_pdf,
        "png": pages.write_png,
        "render": pages.write_png,
        "safe-pdf": pages.write_safe_pdf,
    }[target]


def main():
    work = Work(json.load(sys.stdin), FILE)
    try:
        os.makedirs(work.out, exist_ok=True)
        os.makedirs(work.scratch)
        verdict = {"verdict": "done", **chapter(sys.argv[1])(work)}
    except NotPossible as why:
        empty(work.out)
        verdict = {"verdict": "not possible", "reason": why.reason, "words": why.words[:300]}
    except MemoryError:
        empty(work.out)
        verdict = {"verdict": "not possible", "reason": "too large", "words": "it needs more memory than its limit"}
    shutil.rmtree(work.scratch, ignore_errors=True)
    verdict.update(type=work.type, **({"notes": work.notes[:20]} if work.notes else {}))
    print(json.dumps(verdict))
    if verdict["verdict"] == "done":
        return 0
    print(f"{verdict['reason']}: {verdict['words']}", file=sys.stderr)
    return 0 if work.verdict_is_result and verdict["reason"] not in BY_CHANCE else 1


#: On a machine with less to do, or with more memory, it may end otherwise.
BY_CHANCE = ("timed out", "too large", "failed")


def empty(folder):
    """Of a file from which nothing can be made, no half of a result stays."""
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


if __name__ == "__main__":
    sys.exit(main())
