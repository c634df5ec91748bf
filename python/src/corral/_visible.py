"""What a person sees of a text that a worker chose: `printable` of src/text/visible.ts, which says why. A test compares the two."""

from __future__ import annotations

import re
import unicodedata

_MOST_MARKS = 4
# Letters, marks and symbols that are drawn as nothing. What else is hidden, its category says.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc"
    "\U0001107f\U00013441\U00013442\U00016fe4\U0001d159\U0001da8c\U000e0100-\U000e01ef]"
)
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff]")


def printable(text: str) -> str:
    """Whole lines, safe to print: nothing in them is hidden, and nothing changes the order in which the rest is read."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "\n".join(_in_order(_without_hidden(line)) for line in text.split("\n"))


def _without_hidden(line: str) -> str:
    parts: list[str] = []
    has_base, marks = False, 0
    for c in line:
        category = unicodedata.category(c)
        if c != " " and (category[0] in "CZ" or _BLANK.match(c)):
            has_base = False
            parts.append(_code(c))
        elif category[0] == "M":
            marks += 1
            parts.append(c if has_base and marks <= _MOST_MARKS else _code(c))
        else:
            has_base, marks = category[0] in "LN", 0
            parts.append(c)
    return "".join(parts)


def _in_order(line: str) -> str:
    if _RIGHT_TO_LEFT.search(line) is None:
        return line
    words = _words(line)
    if all(kind == "back" for kind, _ in words if kind):
        return line
    coded: set[int] = set()
    is_enclosed, opened = False, -1
    for at, (kind, _) in enumerate(words):
        if kind == "":
            continue
        if kind == "letters":
            is_enclosed, opened = True, -1
            continue
        if opened >= 0:
            coded.add(opened)
            is_enclosed, opened = True, -1
        if kind == "digits":
            continue
        if kind == "back" and is_enclosed:
            is_enclosed, opened = False, at
        else:
            coded.add(at)
            is_enclosed = True
    if opened >= 0:
        coded.add(opened)
    return "".join("".join(map(_code, text)) if at in coded else text for at, (_, text) in enumerate(words))


def _words(line: str) -> list[tuple[str, str]]:
    """Runs of what goes one way, in order. `back!`: from right to left, with digits in it."""
    words: list[tuple[str, str]] = []
    for c in line:
        category = unicodedata.category(c)
        last, text = words[-1] if words else ("none", "")
        if _RIGHT_TO_LEFT.match(c) or (category[0] == "M" and last in ("back", "back!")):
            kind = "back!" if category == "Nd" or last == "back!" else "back"
            if last in ("back", "back!"):
                words[-1] = (kind, text + c)
                continue
        else:
            kind = "digits" if category == "Nd" else "letters" if category[0] == "L" else ""
            if kind == last:
                words[-1] = (kind, text + c)
                continue
        words.append((kind, c))
    return words


def _code(c: str) -> str:
    return f"\\u{{{ord(c):x}}}"
