"""What is known of a file without running anything of it, in facts.json."""

import hashlib
import json
import os
import re
import zipfile

import kinds
import office
from work import NotPossible, visible

MAX_LISTED = 200
MAX_LINKS = 500
#: Names in a PDF that do something by themselves, or hide something.
PDF_NAMES = ("JavaScript", "JS", "OpenAction", "AA", "Launch", "EmbeddedFile", "RichMedia", "XFA", "AcroForm", "SubmitForm", "GoToR", "URI")
PDF_SCRIPTS = ("JavaScript", "JS", "Launch")
LINK = re.compile(r"(?i)\b(?:https?|ftp|file|mailto|smb)://?[^\s\"'<>\\^`{|}]{1,2000}|mailto:[^\s\"'<>]{1,300}")


def write_facts(work):
    kind = kinds.kind_of(work.file)
    work.type = kind.name
    found = {"type": kind.name, "family": kind.family, "bytes": os.path.getsize(work.file), "sha256": digest(work.file), "encrypted": False}
    try:
        reader = {
            "pdf": pdf_facts, "office": office_facts, "encrypted": encrypted_facts, "image": picture_facts, "drawing": markup_facts,
            "html": markup_facts, "xml": markup_facts, "text": text_facts, "mail": mail_facts, "epub": zip_facts, "archive": archive_facts,
            "packed": packed_facts,
        }.get(kind.family, other_facts)  # fmt: skip
        reader(work, kind, found)
    except NotPossible as why:
        if why.reason == "timed out":
            raise
        if why.reason == "encrypted":
            found["encrypted"] = True
        else:
            found[why.reason.replace(" ", "_")] = why.words
    with open(work.path("facts.json"), "w", encoding="utf-8") as file:
        json.dump(found, file, indent=2, ensure_ascii=True, sort_keys=False)
        file.write("\n")
    told = {key: found[key] for key in ("encrypted", "damaged", "pages", "macros", "scripts") if key in found}
    return {"files": ["facts.json"], "facts": told}


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lines_of(data):
    pairs = (line.split(":", 1) for line in data.decode("utf-8", "replace").splitlines() if ":" in line)
    return {visible(name.strip()): visible(value.strip()) for name, value in pairs}


def pdf_facts(work, kind, found):
    import pages

    status, out, said = work.tool("pdfinfo", work.file)
    if status != 0 and "password" in said.lower():
        found["encrypted"] = True
    path = pages.readable_pdf(work, work.file)
    status, out, said = work.tool("pdfinfo", path)
    if status != 0:
        raise pages.pdf_fault(said)
    info = lines_of(out)
    found["encrypted"] = found["encrypted"] or path != work.file
    found["pages"] = int(info.get("Pages", "0"))
    found["metadata"] = info
    links = work.tool("pdfinfo", "-url", path)[1].decode("utf-8", "replace")
    found["links"] = unique(re.findall(r"(?m)^\s*\d+\s+\S+\s+(\S.*)$", links))
    plain = work.scratch_file()
    work.tool("qpdf", "--qdf", "--object-streams=disable", path, plain)
    with open(plain if os.path.isfile(plain) else path, "rb") as file:
        names = re.findall(rb"/([A-Za-z]{1,20})\b", file.read(256 << 20))
    counts = {name: names.count(name.encode()) for name in PDF_NAMES}
    found["names"] = {name: count for name, count in counts.items() if count}
    found["scripts"] = any(counts[name] for name in PDF_SCRIPTS)
    found["attached"] = unique(re.findall(r"(?m)^\d+: (.*)$", work.tool("pdfdetach", "-list", path)[1].decode("utf-8", "replace")))


def encrypted_facts(work, kind, found):
    found["encrypted"] = True
    path, inner = office.opened(work, work.file, kind)
    found["inside"] = inner.name
    work.type = f"{kind.name}: {inner.name}"
    if inner.family == "office":
        read_office(work, path, inner, found)


def office_facts(work, kind, found):
    found["encrypted"] = office.is_protected(work.file, kind)
    read_office(work, work.file, kind, found)


def read_office(work, path, kind, found):
    found["macros"] = False
    if kind.parts and kind.name in ("docx", "xlsx", "pptx", "vsdx", "odt", "ods", "odp", "odg"):
        with open_zip(path) as file:
            names = file.namelist()
            found["macros"] = any(name.endswith("vbaProject.bin") or name.startswith(("Basic/", "Scripts/")) for name in names)
            found["embedded"] = [visible(name) for name in names if "/embeddings/" in name or name.startswith("Object ")][:MAX_LISTED]
            found["metadata"], links = {}, []
            for name in names:
                if name in ("docProps/core.xml", "docProps/app.xml", "meta.xml"):
                    text = office.member(file, name).decode("utf-8", "replace")
                    found["metadata"].update({visible(key): visible(value) for key, value in re.findall(r"<(?:\w+:)?([\w-]+)[^<>]*>([^<>]+)</", text)})
                elif name.endswith(".rels"):
                    text = office.member(file, name).decode("utf-8", "replace")
                    tags = [tag for tag in re.findall(r"<Relationship\b[^>]*>", text) if 'TargetMode="External"' in tag]
                    links += [match[1] for tag in tags if (match := re.search(r'Target="([^"]*)"', tag))]
                elif name == "content.xml":
                    links += re.findall(r'xlink:href="(\w+:[^"]*)"', office.member(file, name).decode("utf-8", "replace"))
        found["links"] = unique(links)
        pages = found["metadata"].get("Pages") or found["metadata"].get("Slides")
        if pages and pages.isdigit():
            found["pages"] = int(pages)
        return
    if kind.name.startswith("fo") or kind.name == "fb2":
        markup_facts(work, kind, found)
        return
    found["macros"] = any(name.upper() in ("VBA", "_VBA_PROJECT", "_VBA_PROJECT_CUR", "MACROS") for name in kind.parts)
    if kind.name == "rtf":
        with open(path, "rb") as file:
            data = file.read(64 << 20)
        found["embedded"] = ["object"] * min(data.count(b"\\object"), MAX_LISTED)
        found["links"] = unique(LINK.findall(data.decode("latin-1")))
    other_facts(work, kind, found, path)


def open_zip(path):
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError) as why:
        raise NotPossible("damaged", visible(why)) from None


def zip_facts(work, kind, found):
    found["contents"] = [visible(name) for name in kind.parts[:MAX_LISTED]]
    found["files"] = len(kind.parts)
    other_facts(work, kind, found)


def picture_facts(work, kind, found):
    other_facts(work, kind, found)


def other_facts(work, kind, found, path=None):
    """What exiftool says; for an unknown type, what `file` says."""
    _, out, _ = work.tool("exiftool", "-j", "-q", "-x", "Directory", "-x", "FileName", "-x", "SourceFile", "-x", "File*Date*", path or work.file)
    try:
        told = json.loads(out or b"[{}]")[0]
        found["metadata"] = {visible(key): value if isinstance(value, (int, float, bool)) else visible(value) for key, value in list(told.items())[:MAX_LISTED]}
        pages = told.get("Pages") or told.get("PageCount") or told.get("Slides")
        if isinstance(pages, int):
            found["pages"] = pages
    except (ValueError, IndexError, AttributeError):
        pass
    if kind.family in ("unknown", "empty"):
        found["described"] = visible(work.tool("file", "-b", work.file)[1].decode("utf-8", "replace").strip())


def text_facts(work, kind, found):
    import texts

    text = texts.plain(work.file)
    found["lines"] = text.count("\n")
    found["characters"] = len(text)
    found["links"] = unique(LINK.findall(text[: 16 << 20]))


def markup_facts(work, kind, found):
    if kind.name in ("wmf", "emf"):
        return other_facts(work, kind, found)
    text_facts(work, kind, found)
    import texts

    text = texts.plain(work.file)[: 16 << 20]
    if kind.family == "office":
        found["macros"] = re.search(r"<[\w.]+:(module|source-code)\b", text) is not None
    found["scripts"] = re.search(r"(?i)<script\b|\bon(load|click|error|mouseover)\s*=|javascript:", text) is not None
    found["links"] = unique([*re.findall(r"(?i)\b(?:href|src|action)\s*=\s*[\"']?([^\s\"'<>]+)", text), *found["links"]])


def mail_facts(work, kind, found):
    import mail

    found["messages"], attached, links = 0, [], []
    for one in mail.messages(work, work.file, kind):
        found["messages"] += 1
        if found["messages"] == 1:
            found["metadata"] = {name: visible(value) for name, value in one.headers}
        attached += [{"name": visible(name), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in one.attached]
        links += LINK.findall(one.text + (one.html or b"").decode("utf-8", "replace"))
    found["attached"] = attached[:MAX_LISTED]
    found["links"] = unique(links)


def archive_facts(work, kind, found):
    """Names, kinds and sizes as the archive says them: nothing is unpacked."""
    import stat

    from unpack import Archive

    names, found["files"], found["unpacked_bytes"], found["links_inside"] = [], 0, 0, 0
    archive = Archive(work.file, work.passwords)
    found["contents"] = names
    try:
        for name, mode, size in archive.entries():
            found["files"] += 1
            found["unpacked_bytes"] += max(0, size)
            found["links_inside"] += stat.S_ISLNK(mode)
            if len(names) < MAX_LISTED:
                names.append(visible(os.fsdecode(name)))
            if found["files"] >= 1_000_000:
                work.note("only the first million files are counted")
                break
        found["encrypted"] = archive.lib.archive_read_has_encrypted_entries(archive.handle) > 0
    finally:
        archive.close()


def packed_facts(work, kind, found):
    from unpack import unpacked

    inner = unpacked(work, work.file, kind)
    found["inside"] = kinds.kind_of(inner).name
    found["unpacked_bytes"] = os.path.getsize(inner)
    work.type = f"{kind.name}: {found['inside']}"


def unique(links):
    return [visible(one) for one in dict.fromkeys(links)][:MAX_LINKS]
