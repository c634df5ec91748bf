"""Office files: their text straight from their XML, all else by LibreOffice, which gets a profile of its own and an end."""

import os
import re
import shutil
import subprocess
import xml.parsers.expat
import zipfile

from work import NotPossible, last_line

SUFFIX = {"text": "txt", "xml": "txt", "emf": "emf", "wmf": "wmf", "svg": "svg", "ole": "doc"}
#: What LibreOffice is not to guess: it would take one that is damaged for a text, and show its source.
FILTERS = {
    "txt": "Text (encoded):UTF8,LF,,,",
    "fodt": "OpenDocument Text Flat XML",
    "fods": "OpenDocument Spreadsheet Flat XML",
    "fodp": "OpenDocument Presentation Flat XML",
    "fodg": "OpenDocument Drawing Flat XML",
    "fb2": "FictionBook 2",
}
MAX_XML = 256 << 20


#: Excel encrypts a file with it whose author only locked its sheets.
NO_PASSWORD = "VelvetSweatshop"


def opened(work, path, kind):
    """The file without its password: (path, kind). A file without one is as it was."""
    if kind.name != "encrypted" and not is_protected(path, kind):
        return path, kind
    from kinds import kind_of

    if not kind.name.startswith("od"):
        made = work.scratch_file()
        for word in [NO_PASSWORD, *work.passwords]:
            status, _, _ = work.tool("msoffcrypto-tool", "-p", word, path, made)
            if status == 0 and os.path.isfile(made):
                return made, kind_of(made)
    raise NotPossible("encrypted", "no password of the file opens it" if work.passwords else "it needs a password: --password-file FILE")


def to_pdf(work, path, kind, suffix=None):
    """The file as a PDF in the scratch folder."""
    folder = work.scratch_folder()
    suffix = suffix or SUFFIX.get(kind.name, kind.name)
    source = os.path.join(folder, f"in.{suffix}")
    os.symlink(os.path.abspath(path), source)
    filters = [f"--infilter={FILTERS[suffix]}"] if suffix in FILTERS else []
    program = [
        "/usr/lib/libreoffice/program/soffice.bin",
        "--headless", "--invisible", "--nologo", "--norestore", "--nolockcheck", "--nodefault", "--nofirststartwizard",
        f"-env:UserInstallation=file://{profile()}",
        *filters, "--convert-to", "pdf", "--outdir", folder, source,
    ]  # fmt: skip
    status, out, said = work.tool(*program)
    if status == 81:
        # It has made its profile and wants to begin anew.
        status, out, said = work.tool(*program)
    made = os.path.join(folder, "in.pdf")
    if os.path.isfile(made) and os.path.getsize(made) > 0:
        return made
    shutil.rmtree(folder, ignore_errors=True)
    raise NotPossible("damaged", f"LibreOffice makes nothing of it: {last_line(said or out.decode('utf-8', 'replace'), f'status {status}')}")


def profile():
    """Its rules: no macro runs, no link is followed, nothing is asked."""
    folder = "/tmp/office/user"
    if not os.path.isdir(folder):
        os.makedirs(folder)
        settings = {
            "/org.openoffice.Office.Common/Security/Scripting": ("MacroSecurityLevel", 3),
            "/org.openoffice.Office.Calc/Content/Update": ("Link", 1),
            "/org.openoffice.Office.Writer/Content/Update": ("Link", 0),
        }
        items = "".join(
            f'<item oor:path="{path}"><prop oor:name="{name}" oor:op="fuse"><value>{value}</value></prop></item>'
            for path, (name, value) in settings.items()
        )
        with open(f"{folder}/registrymodifications.xcu", "w", encoding="utf-8") as file:
            file.write(
                '<?xml version="1.0" encoding="UTF-8"?>\n<oor:items xmlns:oor="http://openoffice.org/2001/registry" '
                'xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
                f"{items}</oor:items>"
            )
    return "/tmp/office"


def is_protected(path, kind):
    """Whether it says itself that it is encrypted."""
    try:
        if kind.name.startswith("od"):
            with zipfile.ZipFile(path) as file:
                return b"encryption-data" in member(file, "META-INF/manifest.xml")
        if kind.name in ("xls", "doc", "ppt"):
            import ole

            found = ole.Ole(path)
            streams = {name: at for name, at in found.children()}
            if kind.name == "xls":
                book = found.stream(streams.get("Workbook", streams.get("Book", 0)))[:4096]
                # The record FILEPASS among the first ones.
                return re.search(rb"\x2f\x00[\x04-\x40\xc8]\x00", book[:600]) is not None
            if kind.name == "doc":
                return bool(found.stream(streams["WordDocument"])[11] & 1)
            return "EncryptedSummary" in streams
    except Exception:
        return False
    return False


def text_of(work, path, kind):
    """The text, or None if only LibreOffice knows."""
    if kind.name in ("docx", "pptx", "xlsx", "odt", "ods", "odp", "odg"):
        try:
            with zipfile.ZipFile(path) as file:
                return open_document(member(file, "content.xml")) if kind.name.startswith("od") else {"docx": word, "pptx": slides, "xlsx": sheets}[kind.name](file)
        except (zipfile.BadZipFile, xml.parsers.expat.ExpatError, KeyError, EOFError, OSError, ValueError, NotImplementedError, RuntimeError):
            return None
        except subprocess.SubprocessError:
            return None
    if kind.name in ("fodt", "fods", "fodp", "fodg", "fb2"):
        try:
            with open(path, "rb") as file:
                return open_document(file.read(MAX_XML))
        except xml.parsers.expat.ExpatError as why:
            raise NotPossible("damaged", f"its XML: {why}") from None
        except (ValueError, LookupError):
            return None
    if kind.name in ("doc", "xls", "ppt") and not is_protected(path, kind):
        tool = {"doc": ["catdoc", "-w"], "xls": ["xls2csv", "-q0", "-c", "\t"], "ppt": ["catppt"]}[kind.name]
        made = work.scratch_file()
        status, _, said = work.tool(*tool, "-d", "utf-8", path, output=made)
        if status == 0 and not said.strip() and os.path.getsize(made) > 1:
            with open(made, encoding="utf-8", errors="replace") as file:
                return file.read(MAX_XML)
    return None


def member(file, name):
    info = file.getinfo(name)
    if info.file_size > MAX_XML:
        raise NotPossible("bomb", "a part of it unpacks to more bytes than its limit")
    with file.open(info) as part:
        data = part.read(MAX_XML + 1)
    if len(data) > MAX_XML:
        raise NotPossible("bomb", "a part of it unpacks to more bytes than its limit")
    return data


def walked(data, start, end, text):
    """Reads XML with names without their namespaces. Entities are never read from elsewhere."""
    parser = xml.parsers.expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = lambda name, given: start(name.rpartition(":")[2], given)
    parser.EndElementHandler = lambda name: end(name.rpartition(":")[2])
    parser.CharacterDataHandler = text
    parser.Parse(data, True)


def plain(data):
    """The text of WordprocessingML or DrawingML: paragraphs are lines."""
    out, open_now, hidden = [], [0], [0]

    def start(name, given):
        if name == "t":
            open_now[0] += 1
        elif name in ("delText", "instrText", "Fallback"):
            hidden[0] += name == "Fallback"
        elif name == "tab" and not given.get("w:val"):
            out.append("\t")
        elif name in ("br", "cr"):
            out.append("\n")

    def end(name):
        if name == "t":
            open_now[0] -= 1
        elif name == "Fallback":
            hidden[0] -= 1
        elif name == "p":
            out.append("\n")
        elif name == "tc":
            out.append("\t")

    walked(data, start, end, lambda piece: out.append(piece) if open_now[0] and not hidden[0] else None)
    return "".join(out)


def numbered(names, pattern):
    found = [(int(match[1] or 0), name) for name in names if (match := re.fullmatch(pattern, name))]
    return [name for _, name in sorted(found)]


def word(file):
    names = file.namelist()
    parts = [name for name in names if re.fullmatch(r"word/document\d*\.xml", name)]
    if not parts:
        raise KeyError("no document")
    for further in (r"word/footnotes()\.xml", r"word/endnotes()\.xml", r"word/comments()\.xml", r"word/header(\d*)\.xml", r"word/footer(\d*)\.xml"):
        parts += numbered(names, further)
    return "\n".join(text for text in (plain(member(file, part)) for part in parts) if text.strip())


def slides(file):
    names = file.namelist()
    parts = numbered(names, r"ppt/slides/slide(\d+)\.xml") + numbered(names, r"ppt/notesSlides/notesSlide(\d+)\.xml")
    return "\f".join(plain(member(file, part)) for part in parts)


def sheets(file):
    names = file.namelist()
    shared = []
    if "xl/sharedStrings.xml" in names:
        shared = shared_strings(member(file, "xl/sharedStrings.xml"))
    parts = numbered(names, r"xl/worksheets/sheet(\d*)\.xml")
    if not parts:
        raise KeyError("no sheet")
    further = numbered(names, r"xl/comments(\d*)\.xml") + numbered(names, r"xl/drawings/drawing(\d*)\.xml")
    return "\f".join([rows(member(file, part), shared) for part in parts] + [plain(member(file, part)) for part in further])


def shared_strings(data):
    found, now, inside = [], [], [False]

    def start(name, _):
        inside[0] = name == "t"

    def end(name):
        inside[0] = False
        if name == "si":
            found.append("".join(now))
            now.clear()

    walked(data, start, end, lambda piece: now.append(piece) if inside[0] else None)
    return found


def rows(data, shared):
    out, cell, state = [], [], {"type": "", "inside": False}

    def start(name, given):
        if name == "c":
            state["type"] = given.get("t", "n")
            cell.clear()
        state["inside"] = name in ("v", "t")

    def end(name):
        state["inside"] = False
        if name == "c":
            value = "".join(cell)
            if state["type"] == "s" and value.isdigit() and int(value) < len(shared):
                value = shared[int(value)]
            out.append(value.replace("\n", " ") + "\t")
        elif name == "row":
            out.append("\n")

    walked(data, start, end, lambda piece: cell.append(piece) if state["inside"] else None)
    return "".join(out)


def open_document(data):
    """The paragraphs of OpenDocument, and of FictionBook, whose verses and subtitles are none. Beside the body are those of styles."""
    out, depth, body = [], [0], [0]

    def start(name, given):
        body[0] += name == "body"
        if not body[0]:
            return
        if name in ("p", "h", "v", "subtitle"):
            depth[0] += 1
        elif name == "s":
            out.append(" " * min(int(given.get("text:c", "1") or 1), 100))
        elif name == "tab":
            out.append("\t")
        elif name == "line-break":
            out.append("\n")

    def end(name):
        body[0] -= name == "body"
        if not body[0]:
            return
        if name in ("p", "h", "v", "subtitle"):
            depth[0] -= 1
            out.append("\n")
        elif name == "table-cell":
            if out and out[-1] == "\n":
                out.pop()
            out.append("\t")
        elif name == "table-row":
            out.append("\n")

    walked(data, start, end, lambda piece: out.append(piece) if depth[0] else None)
    return "".join(out)
