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
    elif path != work.file:
        shutil.copyfile(path, os.path.join(folder, "content"))
        names = ["content"]
    elif kind.family == "unknown":
        import texts

        raise texts.unknown(work, path, kind)
    else:
        raise NotPossible("no parts", f"nothing is inside of {kind.name}")
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
