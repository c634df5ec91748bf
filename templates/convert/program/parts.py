"""What is inside of a file, each as a file of its own below parts/: of archives, mails, packed files, PDF and office files."""

import os
import shutil

import kinds
from work import NotPossible, visible


def write_parts(work):
    import office
    import pages

    path, kind = pages.opened(work)
    folder = work.path("parts")
    os.mkdir(folder)
    if kind.family == "mail":
        names = mail_parts(work, path, kind, folder)
    elif kind.family == "pdf":
        names = pdf_parts(work, pages.readable_pdf(work, path), folder)
    elif kind.family in ("archive", "epub") or kind.name in ("docx", "xlsx", "pptx", "vsdx", "odt", "ods", "odp", "odg"):
        from unpack import unpack

        names = [name for name, _ in unpack(work, path, folder)]
    elif kinds.is_compound(path):
        names = object_parts(work, path, folder)
    elif path != work.file:
        shutil.copyfile(path, os.path.join(folder, "content"))
        names = ["content"]
    elif kind.family == "unknown":
        import texts

        raise texts.unknown(work, path, kind)
    else:
        raise NotPossible("no parts", f"nothing can be taken out of {kind.name}")
    if not names:
        raise NotPossible("no parts", "no regular file is inside")
    for parent, folders, files in os.walk(folder):
        for name in folders:
            os.chmod(os.path.join(parent, name), 0o755)
        for name in files:
            os.chmod(os.path.join(parent, name), 0o644)
    return {"files": ["parts"], "parts": len(names)}


def mail_parts(work, path, kind, folder):
    import mail
    from unpack import place_for

    names, seen = [], {}

    def put(name, data):
        work.take(len(data), files=1)
        # A slash in the name of an attachment is a part of the name.
        target = place_for(folder, os.fsencode(name.encode("utf-8", "replace").decode("utf-8").replace("/", "\\")), seen)
        with open(target, "wb") as file:
            file.write(data)
        names.append(name)

    for one in mail.messages(work, path, kind):
        head = "".join(f"{name}: {visible(value)}\n" for name, value in one.headers)
        put("message.txt", f"{head}\n{one.text}".encode("utf-8", "replace"))
        if one.html:
            put("message.html", one.html)
        for name, data in one.attached:
            put(name, data)
    return names


def pdf_parts(work, path, folder):
    """What is attached to a PDF."""
    from unpack import place_for

    into, seen, names = work.scratch_folder(), {}, []
    work.tool("pdfdetach", "-saveall", "-o", into, path)
    for parent, _, files in os.walk(into):
        for name in files:
            at = os.path.join(parent, name)
            if os.path.isfile(at) and not os.path.islink(at):
                work.take(os.path.getsize(at), files=1)
                os.rename(at, place_for(folder, os.fsencode(name), seen))
                names.append(name)
    if not names:
        raise NotPossible("no parts", "nothing is attached to it")
    return names


def object_parts(work, path, folder):
    """What is embedded in an old office file: whole files, and objects of PowerPoint, which are compound files themselves."""
    import ole
    from unpack import place_for

    names, seen = [], {}

    def put(name, data):
        work.take(len(data), files=1)
        with open(place_for(folder, os.fsencode(name.replace("/", "\\")), seen), "wb") as file:
            file.write(data)
        names.append(name)

    try:
        compound = ole.Ole(path)
        for parent, name, entry in compound.streams():
            if name == "\x01Ole10Native":
                packed = native_file(compound.stream(entry))
                if packed:
                    put(*packed)
            elif parent and name in ("Package", "CONTENTS"):
                data = compound.stream(entry)
                if data:
                    put(parent, data)
            elif not parent and name == "PowerPoint Document":
                for data in slides_objects(work, compound.stream(entry)):
                    put("object", data)
    except ole.Broken as why:
        raise NotPossible("damaged", visible(why)) from None
    if not names:
        raise NotPossible("no parts", "no file is embedded in it")
    return names


def native_file(data):
    """The name and the content of a file that was packed as an object; None: it has another form."""
    try:
        label, rest = data[6:].split(b"\0", 1)
        source, rest = rest.split(b"\0", 1)
        length = int.from_bytes(rest[4:8], "little")
        rest = rest[8 + length :]
        size = int.from_bytes(rest[:4], "little")
    except ValueError:
        return None
    content = rest[4 : 4 + size]
    name = (label or source.replace(b"\\", b"/").split(b"/")[-1]).decode("cp1252", "replace")
    return (name, content) if content and len(content) == size else None


def slides_objects(work, data):
    """The compound files in the stream of a presentation."""
    import zlib

    at = 0
    while at + 8 <= len(data):
        instance, kind = int.from_bytes(data[at : at + 2], "little") >> 4, int.from_bytes(data[at + 2 : at + 4], "little")
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        content = data[at + 8 : at + 8 + size]
        at += 8 + size
        if kind != 0x1011:
            continue
        if instance != 1:
            yield content
            continue
        try:
            yield zlib.decompressobj().decompress(content[4:], work.bytes_left + 1)
        except zlib.error as why:
            work.note(f"left out an object: {why}")
