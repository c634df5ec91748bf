"""The text of a file, in text.txt: of a mail or an archive that of everything inside, under a line with its name."""

import os
import re

import kinds
import office
from work import MAX_DEPTH, NotPossible, last_line, visible

MAX_TEXT = 256 << 20
# A terminal would obey them: all but tab, line feed, form feed and carriage return.
CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
ADVICE = "its text is in pictures: --ocr LANGUAGE, such as eng, reads it"


def write_text(work):
    kind = kinds.kind_of(work.file)
    work.type = kind.name
    count, is_blank = 0, True
    with open(work.path("text.txt"), "wb") as out:
        for piece in text_of(work, work.file, kind, 0):
            piece = CONTROLS.sub("", piece)
            data = piece.encode("utf-8", "replace")
            count += len(data)
            if count > MAX_TEXT:
                raise NotPossible("too large", f"its text has more than {MAX_TEXT >> 20} MiB")
            out.write(data)
            is_blank = is_blank and not piece.strip()
    if is_blank:
        raise NotPossible("no text", work.notes.pop() if work.notes else "no text is found in it")
    return {"files": ["text.txt"], "bytes": count}


def text_of(work, path, kind, depth):
    """Pieces of text. `depth`: how many containers are around it."""
    if kind.family == "packed":
        from unpack import unpacked

        if depth >= MAX_DEPTH:
            raise NotPossible("bomb", f"it is packed more than {MAX_DEPTH} times")
        inner = unpacked(work, path, kind)
        found = kinds.kind_of(inner)
        if depth == 0:
            work.type = f"{kind.name}: {found.name}"
        yield from text_of(work, inner, found, depth + 1)
    elif kind.family in ("archive", "mail"):
        yield from (archive_text if kind.family == "archive" else mail_text)(work, path, kind, depth)
    else:
        yield simple_text(work, path, kind)


def simple_text(work, path, kind):
    """Of what contains no other file."""
    if kind.family in ("encrypted", "office"):
        path, kind = office.opened(work, path, kind)
    if kind.family in ("text", "xml"):
        return plain(path)
    if kind.family == "empty":
        raise NotPossible("empty", "it has no bytes")
    if kind.family == "html":
        return html_text(work, path)
    if kind.family == "epub":
        return html_text(work, book(work, path))
    if kind.family == "pdf":
        return pdf_text(work, path)
    if kind.family == "image":
        return picture_text(work, path, kind)
    if kind.family in ("office", "drawing"):
        text = office.text_of(work, path, kind)
        return text if text and text.strip() else pdf_text(work, office.to_pdf(work, path, kind))
    raise unknown(work, path, kind)


def unknown(work, path, kind):
    if kind.name == "unknown":
        _, said, _ = work.tool("file", "-b", path)
        return NotPossible("unknown type", f"it is {visible(said.decode('utf-8', 'replace').strip())[:120]}")
    return NotPossible("unknown type", f"it is {kind.name}, which is not read")


def plain(path):
    with open(path, "rb") as file:
        data = file.read(MAX_TEXT)
    return (kinds.decoded(data) or data.decode("utf-8", "replace")).lstrip("\ufeff")


def html_text(work, path):
    made = work.scratch_file()
    status, _, said = work.tool("w3m", "-dump", "-T", "text/html", "-O", "UTF-8", "-cols", "120", input=path, output=made)
    if status != 0:
        raise NotPossible("damaged", last_line(said, "w3m does not read it"))
    return plain(made)


def book(work, path):
    """The chapters of an e-book as one page, in the order that the book says."""
    import re
    import urllib.parse
    import zipfile

    made = work.scratch_file()
    try:
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
            if "META-INF/encryption.xml" in names and b"EncryptedKey" in office.member(file, "META-INF/encryption.xml"):
                raise NotPossible("encrypted", "its content is protected")
            opf = next(name for name in names if name.endswith(".opf"))
            text = office.member(file, opf).decode("utf-8", "replace")
            items = {}
            for tag in re.findall(r"<(?:\w+:)?item\s[^>]*>", text):
                given = dict(re.findall(r'([\w-]+)\s*=\s*"([^"]*)"', tag))
                items[given.get("id")] = urllib.parse.unquote(given.get("href", ""))
            spine = [items.get(one) for one in re.findall(r'<(?:\w+:)?itemref\s[^>]*idref\s*=\s*"([^"]*)"', text)]
            with open(made, "wb") as out:
                for one in spine:
                    name = os.path.normpath(os.path.join(os.path.dirname(opf), one or ""))
                    if name in names:
                        data = office.member(file, name)
                        work.take(len(data), files=1)
                        out.write(re.sub(rb"<\?xml[^>]*>", b"", data) + b"<hr>")
    except (zipfile.BadZipFile, KeyError, StopIteration, OSError, ValueError, NotImplementedError, RuntimeError) as why:
        raise NotPossible("damaged", visible(why) or "it has no content") from None
    return made


def pdf_text(work, path):
    import pages

    source = pages.readable_pdf(work, path)
    made = work.scratch_file()
    status, _, said = work.tool("pdftotext", "-layout", "-enc", "UTF-8", source, made)
    if status != 0:
        raise pages.pdf_fault(said)
    text = plain(made)
    if text.strip():
        return text
    if work.ocr:
        return "\f".join(pages.recognized(work, page) for page in pages.pictures(work, source))
    work.note(f"it has no text; if {ADVICE}" if pages.count(work, source) else "it has no pages")
    return text


def picture_text(work, path, kind):
    import pages

    if not work.ocr:
        raise NotPossible("no text", ADVICE)
    return "\f".join(pages.recognized(work, page) for page in pages.frames(work, path, kind))


def mail_text(work, path, kind, depth):
    import mail

    for one in mail.messages(work, path, kind):
        yield "\n".join([*(f"{name}: {value}" for name, value in one.headers), "", ""])
        if one.text.strip() or not one.html:
            yield one.text.replace("\r\n", "\n") + "\n"
        else:
            page = work.scratch_file()
            with open(page, "wb") as file:
                file.write(one.html)
            yield html_text(work, page) + "\n"
            os.unlink(page)
        for name, data in one.attached:
            work.take(len(data), files=1)
            part = work.scratch_file()
            with open(part, "wb") as file:
                file.write(data)
            yield from inner_text(work, name, part, depth)


def archive_text(work, path, kind, depth):
    from unpack import unpack

    folder = work.scratch_folder()
    for name, part in unpack(work, path, folder):
        yield from inner_text(work, name, part, depth)


def inner_text(work, name, path, depth):
    """One file inside. What is wrong with it is said in its place, and the others are read."""
    yield f"\n===== {visible(name)} =====\n"
    try:
        if depth >= MAX_DEPTH:
            raise NotPossible("bomb", f"it is inside of more than {MAX_DEPTH} others")
        yield from text_of(work, path, kinds.kind_of(path), depth + 1)
    except NotPossible as why:
        if why.reason == "timed out" or (why.reason == "bomb" and (work.bytes_left < 0 or work.files_left < 0)):
            raise
        yield f"[not possible, {why.reason}: {why.words}]\n"
    finally:
        if os.path.exists(path):
            os.unlink(path)
