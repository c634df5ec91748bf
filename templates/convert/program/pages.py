"""Pages: of every file that has some a PDF, pictures, and a PDF that is made of nothing but these pictures."""

import html
import json
import os
import re
import struct
import zlib

import kinds
import office
import texts
from work import MAX_DEPTH, NotPossible, last_line

MAX_PAGES = 10_000
MAX_SIDE = 14_000
#: A page of more points is a trap or a plan: it is made smaller.
MAX_POINTS = 4000


def write_pdf(work):
    pdf = as_pdf(work, *opened(work))
    os.rename(pdf, work.path("document.pdf"))
    return {"files": ["document.pdf"], "pages": count(work, work.path("document.pdf"))}


def write_png(work):
    path, kind = opened(work)
    pages = frames(work, path, kind) if kind.family == "image" else pictures(work, readable_pdf(work, as_pdf(work, path, kind)))
    names = []
    for number, page in enumerate(pages, 1):
        names.append(f"page-{number:04}.png")
        os.rename(page, work.path(names[-1]))
    if not names:
        raise NotPossible("damaged", "it has no pages")
    return {"files": names[:100], "pages": len(names)}


def write_safe_pdf(work):
    """The file is read by another container, `render`. From it come pictures alone, of which this one takes the pixels."""
    folder = work.path("%pages")
    os.mkdir(folder)
    asked = {"folder": folder, "dpi": work.dpi, "max_bytes": work.bytes_left, "seconds": max(1, work.left() - 5)}
    attached = ["--attach", f"{work.file}=file"]
    if work.passwords:
        attached += ["--attach", "/attachments/passwords=passwords"]
    status, said, errors = work.tool("corral-call", "render", json.dumps(asked), *attached, "--allow-read", "/program", "--allow-read", folder, "--allow-write", folder, whole=True)
    told = verdict_of(said)
    work.type = str(told.get("type"))[:40]
    if status != 0:
        if told.get("verdict") == "not possible":
            raise NotPossible(str(told.get("reason"))[:40], str(told.get("words"))[:300])
        if status == 124:
            raise NotPossible("timed out", "its pages were not made within the time for it")
        if status == 137:
            raise NotPossible("too large", "its pages need more memory than the limit")
        raise NotPossible("damaged", last_line(errors, "the program that reads it ended"))
    pages = sorted(name for name in os.listdir(folder) if re.fullmatch(r"page-\d{4,5}\.png", name))[:MAX_PAGES]
    made = work.path("document.pdf")
    assemble([os.path.join(folder, name) for name in pages], made, work.dpi)
    if work.ocr and pages:
        add_text(work, folder, pages, made)
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)
    return {"files": ["document.pdf"], "pages": len(pages)}


def verdict_of(said):
    try:
        found = json.loads(said)
        return found if isinstance(found, dict) else {}
    except ValueError:
        return {}


def opened(work):
    """The file, without what it is packed in and without its password."""
    path, kind = work.file, kinds.kind_of(work.file)
    names = [kind.name]
    work.type = kind.name
    while kind.family == "packed":
        from unpack import unpacked

        if len(names) > MAX_DEPTH:
            raise NotPossible("bomb", f"it is packed more than {MAX_DEPTH} times")
        path = unpacked(work, path, kind)
        kind = kinds.kind_of(path)
        names.append(kind.name)
    work.type = ": ".join(names)
    if kind.family in ("encrypted", "office"):
        path, kind = office.opened(work, path, kind)
        work.type += f": {kind.name}" if kind.name != names[-1] else ""
    return path, kind


def as_pdf(work, path, kind):
    """A PDF in the scratch folder."""
    if kind.family == "pdf":
        return copied(work, readable_pdf(work, path))
    if kind.family == "image":
        made = work.scratch_file(".pdf")
        assemble(list(frames(work, path, kind)), made, work.dpi)
        return made
    if kind.family in ("office", "drawing", "text", "xml"):
        return office.to_pdf(work, utf8(work, path) if kind.family in ("text", "xml") else path, kind)
    if kind.family in ("html", "epub"):
        return office.to_pdf(work, texts.book(work, path) if kind.family == "epub" else path, kind, "html")
    if kind.family == "mail":
        return office.to_pdf(work, letter(work, path, kind), kind, "html")
    if kind.family == "archive":
        raise NotPossible("no pages", "an archive has no pages: --to parts unpacks it, --to text reads what is in it")
    if kind.family == "empty":
        raise NotPossible("empty", "it has no bytes")
    raise texts.unknown(work, path, kind)


def utf8(work, path):
    made = work.scratch_file()
    with open(made, "w", encoding="utf-8", errors="replace") as file:
        file.write(texts.plain(path))
    return made


def letter(work, path, kind):
    """A mail as a page. What it would fetch from elsewhere is left out, and what is attached is named."""
    import mail

    made = work.scratch_file()
    with open(made, "wb") as out:
        out.write(b'<html><head><meta charset="utf-8"></head><body>')
        for one in mail.messages(work, path, kind):
            out.write(b"<table>")
            for name, value in [*one.headers, *(("Attached", name) for name, _ in one.attached)]:
                out.write(f"<tr><td><b>{name}</b></td><td>{html.escape(value)}</td></tr>".encode("utf-8", "replace"))
            out.write(b"</table><hr>")
            out.write(one.html if one.html else f"<pre>{html.escape(one.text)}</pre>".encode("utf-8", "replace"))
            out.write(b"<hr>")
        out.write(b"</body></html>")
    return made


def copied(work, path):
    if path != work.file:
        return path
    import shutil

    made = work.scratch_file(".pdf")
    shutil.copyfile(path, made)
    return made


def readable_pdf(work, path):
    """The file itself; one that is encrypted without its password, if it is known or empty."""
    status, out, said = work.tool("pdfinfo", path)
    if status == 0 and not re.search(rb"(?m)^Encrypted:\s+yes", out):
        return path
    if status == 0:
        words = [""]
    elif "password" in said.lower() or "encrypt" in said.lower():
        words = work.passwords
    else:
        raise pdf_fault(said)
    for word in words:
        made = work.scratch_file(".pdf")
        # qpdf ends with 3 after warnings: the file is there.
        if work.tool("qpdf", f"--password={word}", "--decrypt", path, made)[0] in (0, 3):
            return made
    if status == 0:
        return path
    raise NotPossible("encrypted", "no password of the file opens it" if work.passwords else "it needs a password: --password-file FILE")


def pdf_fault(said):
    if "incorrect password" in said.lower():
        return NotPossible("encrypted", "it needs a password: --password-file FILE")
    return NotPossible("damaged", last_line(said, "it is no PDF that can be read"))


def count(work, path):
    found = re.search(rb"(?m)^Pages:\s+(\d+)", work.tool("pdfinfo", path)[1])
    return int(found[1]) if found else 0


def pictures(work, pdf):
    """The pages of a PDF as PNG files in the scratch folder, one after another."""
    total = count(work, pdf)
    if total == 0:
        raise NotPossible("damaged", "it has no pages")
    if total > MAX_PAGES:
        raise NotPossible("too large", f"it has more than {MAX_PAGES} pages")
    listed = work.scratch_file()
    work.tool("pdfinfo", "-f", "1", "-l", str(total), pdf, output=listed)
    sizes = re.findall(r"(?m)^Page\s+(\d+)\s+size:\s+([\d.]+) x ([\d.]+)", texts.plain(listed))
    sides = {int(number): max(float(width), float(height)) for number, width, height in sizes}
    lost, step = 0, 8
    for first in range(1, total + 1, step):
        last = min(total, first + step - 1)
        large = max((sides.get(n, 0) for n in range(first, last + 1)), default=0) > MAX_POINTS
        size = ["-scale-to", "4000"] if large else ["-r", str(work.dpi)]
        folder = work.scratch_folder()
        status, _, said = work.tool("pdftoppm", "-png", *size, "-f", str(first), "-l", str(last), pdf, os.path.join(folder, "p"))
        names = sorted(os.listdir(folder), key=lambda name: int(re.sub(r"\D", "", name) or 0))
        lost += last - first + 1 - len(names)
        if status != 0 and not names and total <= step:
            raise pdf_fault(said)
        for name in names:
            path = os.path.join(folder, name)
            work.take(os.path.getsize(path))
            yield path
    if lost == total:
        raise NotPossible("damaged", "none of its pages can be shown")
    if lost:
        work.note(f"{lost} of {total} pages cannot be shown")


def frames(work, path, kind):
    """The pictures of an image file as PNG files."""
    folder = work.scratch_folder()
    status, _, said = work.tool(
        "convert", "-limit", "memory", "512MiB", "-limit", "disk", "4GiB", "-limit", "width", str(MAX_SIDE), "-limit", "height", str(MAX_SIDE),
        f"{IMAGE_CODERS.get(kind.name, kind.name)}:{path}[0-499]",
        "-auto-orient", "-background", "white", "-alpha", "remove", "-strip", "-depth", "8", f"PNG24:{folder}/p-%05d.png",
        env={"MAGICK_TMPDIR": work.scratch},
    )  # fmt: skip
    names = sorted(os.listdir(folder))
    if kind.name == "psd":
        names = names[:1]
    if not names:
        words = last_line(said, f"status {status}")
        raise NotPossible("too large" if "limit" in words.lower() else "damaged", re.sub(r"@ \S+$", "", words))
    if status != 0:
        work.note(last_line(said, "a part of it is damaged"))
    for name in names:
        work.take(os.path.getsize(os.path.join(folder, name)))
        yield os.path.join(folder, name)


IMAGE_CODERS = {"jpeg": "jpeg", "tiff": "tiff", "pnm": "pnm", "jp2": "jp2", "ico": "ico"}


def recognized(work, picture):
    status, _, said = work.tool("tesseract", picture, picture, "-l", work.ocr, env={"OMP_THREAD_LIMIT": "1"})
    if status != 0:
        raise ocr_fault(work, said)
    return texts.plain(f"{picture}.txt")


def ocr_fault(work, said):
    if "loading language" in said:
        return NotPossible("no text", f"the image has no language {work.ocr} for OCR")
    return NotPossible("no text", last_line(said, "OCR failed"))


def add_text(work, folder, pages, pdf):
    """Invisible text over the pictures, by OCR."""
    listed, layer, made = work.scratch_file(".txt"), work.scratch_file(), work.scratch_file(".pdf")
    with open(listed, "w", encoding="utf-8") as file:
        file.write("".join(f"{os.path.join(folder, name)}\n" for name in pages))
    status, _, said = work.tool(
        "tesseract", listed, layer, "-l", work.ocr, "--dpi", str(work.dpi), "-c", "textonly_pdf=1", "pdf", env={"OMP_THREAD_LIMIT": "1"}, whole=True
    )
    if status != 0:
        raise ocr_fault(work, said)
    status, _, said = work.tool("qpdf", pdf, "--overlay", f"{layer}.pdf", "--", made)
    if status not in (0, 3):
        raise NotPossible("no text", last_line(said, "the text could not be added"))
    os.rename(made, pdf)


def assemble(pictures, path, dpi):
    """Writes a PDF whose pages are these PNG files. Nothing of a file is copied: its pixels are unpacked, counted and packed again."""
    if not pictures:
        raise NotPossible("damaged", "it has no pages")
    places = []
    with open(path, "wb") as out:

        def put(number, body, stream=None):
            places.append((number, out.tell()))
            out.write(b"%d 0 obj\n%b\n" % (number, body))
            out.write(b"endobj\n" if stream is None else b"stream\n%b\nendstream\nendobj\n" % stream)

        out.write(b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n")
        kids = b" ".join(b"%d 0 R" % (3 + 3 * at) for at in range(len(pictures)))
        put(1, b"<< /Type /Catalog /Pages 2 0 R >>")
        put(2, b"<< /Type /Pages /Count %d /Kids [%b] >>" % (len(pictures), kids))
        for at, picture in enumerate(pictures):
            width, height, colours, pixels = pixels_of(picture)
            page, w, h = 3 + 3 * at, width * 72 / dpi, height * 72 / dpi
            put(page, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %.2f %.2f] /Resources << /XObject << /I %d 0 R >> >> /Contents %d 0 R >>" % (w, h, page + 1, page + 2))
            space = b"/DeviceRGB" if colours == 3 else b"/DeviceGray"
            put(
                page + 1,
                b"<< /Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace %b /BitsPerComponent 8 /Filter /FlateDecode"
                b" /DecodeParms << /Predictor 15 /Colors %d /BitsPerComponent 8 /Columns %d >> /Length %d >>"
                % (width, height, space, colours, width, len(pixels)),
                pixels,
            )
            drawn = b"q %.2f 0 0 %.2f 0 0 cm /I Do Q" % (w, h)
            put(page + 2, b"<< /Length %d >>" % len(drawn), drawn)
        start = out.tell()
        out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1))
        out.write(b"".join(b"%010d 00000 n \n" % at for _, at in sorted(places)))
        out.write(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(places) + 1, start))


def pixels_of(path):
    """(width, height, 1 or 3, rows as PNG filters them, packed by us), of a PNG of 8 bits a colour; anything else is refused."""
    refused = NotPossible("damaged", "what shows its pages made no plain picture")
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read(512 << 20)
    except OSError:
        raise refused from None
    if data[:8] != b"\x89PNG\r\n\x1a\n" or data[12:16] != b"IHDR":
        raise refused
    width, height, depth, kind, packing, filters, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    colours = {0: 1, 2: 3}.get(kind)
    if depth != 8 or colours is None or packing or filters or interlaced or not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
        raise refused
    unpacker, packer, row = zlib.decompressobj(), zlib.compressobj(6), 1 + width * colours
    made, total, at = [], 0, 8
    while at + 12 <= len(data):
        length, name = struct.unpack(">I4s", data[at : at + 8])
        piece = data[at + 8 : at + 8 + length] if name == b"IDAT" else b""
        at += 12 + length
        while piece:
            try:
                rows = unpacker.decompress(piece, 1 << 20)
            except zlib.error:
                raise refused from None
            piece = unpacker.unconsumed_tail if len(rows) == 1 << 20 else b""
            # Each row begins with the number of its filter.
            if total + len(rows) > row * height or any(byte > 4 for byte in rows[-total % row :: row]):
                raise refused
            total += len(rows)
            made.append(packer.compress(rows))
    if total != row * height:
        raise refused
    return width, height, colours, b"".join([*made, packer.flush()])
