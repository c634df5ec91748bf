"""What a file is, by its content alone: its first bytes, and of a container what is in it. Its name says nothing."""

import re
import struct
import zipfile

import ole

HEAD = 64 << 10

#: First bytes, where they are, the kind, and the family that says which chapter reads it.
MAGIC = [
    (b"\x89PNG\r\n\x1a\n", 0, "png", "image"),
    (b"\xff\xd8\xff", 0, "jpeg", "image"),
    (b"GIF8", 0, "gif", "image"),
    (b"II*\0", 0, "tiff", "image"),
    (b"MM\0*", 0, "tiff", "image"),
    (b"8BPS", 0, "psd", "image"),
    (b"BM", 0, "bmp", "image"),
    (b"\0\0\x01\0", 0, "ico", "image"),
    (b"\0\0\0\x0cjP  ", 0, "jp2", "image"),
    (b"\xd7\xcd\xc6\x9a", 0, "wmf", "drawing"),
    (b"\x01\0\x09\0", 0, "wmf", "drawing"),
    (b"{\\rtf", 0, "rtf", "office"),
    (b"\x1f\x8b", 0, "gzip", "packed"),
    (b"BZh", 0, "bzip2", "packed"),
    (b"\xfd7zXZ\0", 0, "xz", "packed"),
    (b"\x28\xb5\x2f\xfd", 0, "zstd", "packed"),
    (b"\x5d\0\0", 0, "lzma", "packed"),
    (b"\x1f\x9d", 0, "compress", "packed"),
    (b"\x04\x22\x4d\x18", 0, "lz4", "packed"),
    (b"LZIP", 0, "lzip", "packed"),
    (b"7z\xbc\xaf\x27\x1c", 0, "7z", "archive"),
    (b"Rar!\x1a\x07", 0, "rar", "archive"),
    (b"MSCF", 0, "cab", "archive"),
    (b"xar!", 0, "xar", "archive"),
    (b"!<arch>\n", 0, "ar", "archive"),
    (b"\xed\xab\xee\xdb", 0, "rpm", "archive"),
    (b"070701", 0, "cpio", "archive"),
    (b"070702", 0, "cpio", "archive"),
    (b"070707", 0, "cpio", "archive"),
    (b"\xc7\x71", 0, "cpio", "archive"),
    (b"\x71\xc7", 0, "cpio", "archive"),
    (b"WARC/", 0, "warc", "archive"),
    (b"CD001", 32769, "iso", "archive"),
    (b"ustar", 257, "tar", "archive"),
    (b"\x7fELF", 0, "a program", "unknown"),
    (b"MZ", 0, "a program", "unknown"),
    (b"%!PS", 0, "PostScript", "unknown"),
    (b"\xc5\xd0\xd3\xc6", 0, "PostScript", "unknown"),
    (b"\x97JB2\r\n\x1a\n", 0, "JBIG2", "unknown"),
    (b"\xe4\x52\x5c\x7b\x8c\xd8\xa7\x4d", 0, "OneNote", "unknown"),
]

OPEN_DOCUMENT = {"text": "odt", "spreadsheet": "ods", "presentation": "odp", "graphics": "odg"}
#: The same in one file of XML, and an e-book in one.
FLAT = {"text": "fodt", "spreadsheet": "fods", "presentation": "fodp", "graphics": "fodg"}
OPEN_XML = {"word/": "docx", "xl/": "xlsx", "ppt/": "pptx", "visio/": "vsdx"}
OLE_STREAMS = {
    "EncryptedPackage": "encrypted",
    "__properties_version1.0": "msg",
    "WordDocument": "doc",
    "PowerPoint Document": "ppt",
    "Workbook": "xls",
    "Book": "xls",
    "VisioDocument": "vsd",
    "FileHeader": "a document of Hangul",
    "Quill": "a document of Publisher",
}
MAIL_LINE = re.compile(rb"(?i)(received|from|to|subject|date|mime-version|return-path|message-id|delivered-to|x-[\w-]+|content-[\w-]+|reply-to|cc|sender):")
MAIL_CORE = re.compile(rb"(?im)^(from|to|subject|date|message-id|received|return-path):")


class Kind:
    def __init__(self, name, family, parts=()):
        self.name = name
        self.family = family
        #: Names inside of a container that was looked into.
        self.parts = parts


def kind_of(path):
    with open(path, "rb") as file:
        head = file.read(HEAD)
    if not head:
        return Kind("empty", "empty")
    if b"%PDF-" in head[:1024]:
        return Kind("pdf", "pdf")
    if head.startswith(b"PK") and head[2:4] in (b"\x03\x04", b"\x05\x06", b"\x07\x08", b"00"):
        return zip_kind(path)
    if head.startswith(ole.MAGIC):
        return ole_kind(path)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return Kind("webp", "image")
    if head.startswith(b"\x01\0\0\0") and head[40:44] == b" EMF":
        return Kind("emf", "drawing")
    if re.match(rb"P[1-6]\s", head):
        return Kind("pnm", "image")
    if re.match(rb"-l[hz][\x20-\x7e]-", head[2:7]):
        return Kind("lha", "archive")
    for magic, at, name, family in MAGIC:
        if head[at : at + len(magic)] == magic and not (name in ("bmp", "ico") and not is_picture(name, head)):
            return Kind(name, family)
    return tar_kind(head) or text_kind(head) or Kind("unknown", "unknown")


def is_picture(name, head):
    """Two bytes alone are not enough to take a text for a picture."""
    return len(head) > 26 and (struct.unpack_from("<I", head, 14)[0] in (12, 40, 56, 64, 108, 124) if name == "bmp" else 0 < head[4] < 64 and head[5] == 0)


def tar_kind(head):
    """An old tar has no magic, but a sum of its first block."""
    block = head[:512]
    said = re.match(rb" *([0-7]{1,7})[\0 ]", block[148:156]) if len(block) == 512 else None
    if said and int(said[1], 8) == sum(block[:148]) + 8 * 32 + sum(block[156:]):
        return Kind("tar", "archive")
    return None


def is_compound(path):
    with open(path, "rb") as file:
        return file.read(8) == ole.MAGIC


def zip_kind(path):
    try:
        with zipfile.ZipFile(path) as file:
            names = [info.filename for info in file.infolist()[:20_000]]
            first = file.open("mimetype").read(200) if "mimetype" in names and not encrypted_in(file, "mimetype") else b""
    except Exception:
        return Kind("zip", "archive")
    if first.startswith(b"application/epub+zip") or "META-INF/container.xml" in names and b"epub" in first:
        return Kind("epub", "epub", names)
    said = re.match(rb"application/(?:vnd\.oasis\.opendocument|vnd\.sun\.xml)\.(\w+)", first)
    if said and "content.xml" in names:
        return Kind(OPEN_DOCUMENT.get(said[1].decode(), "odt"), "office", names)
    if "[Content_Types].xml" in names:
        for start, name in OPEN_XML.items():
            if any(one.startswith(start) for one in names):
                return Kind(name, "office", names)
        if any(one.endswith(".fpage") for one in names):
            return Kind("xps", "unknown", names)
    if any(one in ("index.apxl", "Index/Document.iwa", "index.xml", "Index.zip") for one in names):
        return Kind("a document of iWork", "unknown", names)
    return Kind("zip", "archive", names)


def encrypted_in(file, name):
    return bool(file.getinfo(name).flag_bits & 1)


def ole_kind(path):
    try:
        names = {name.upper() for name in ole.Ole(path).names()}
    except ole.Broken:
        return Kind("ole", "office")
    for stream, name in OLE_STREAMS.items():
        if stream.upper() in names or name == "msg" and any(one.startswith("__SUBSTG1.0_") for one in names):
            family = {"msg": "mail", "encrypted": "encrypted"}.get(name, "unknown" if " " in name else "office")
            return Kind(name, family, names)
    return Kind("ole", "office", names)


def text_kind(head):
    text = decoded(head)
    if text is None:
        return None
    start = text.lstrip("\ufeff \t\r\n")[:4096].lower()
    raw = head.lstrip(b"\xef\xbb\xbf\r\n")
    if re.match(rb"From \S+ +(mon|tue|wed|thu|fri|sat|sun) \w{3} +\d+ \d\d:\d\d.*\d{4}\s", raw, re.I):
        return Kind("mbox", "mail")
    lines = raw[:4096].split(b"\n")[:30]
    if MAIL_LINE.match(raw) and sum(1 for one in lines if MAIL_LINE.match(one)) >= 2 and MAIL_CORE.search(raw[:4096]):
        return Kind("eml", "mail")
    if re.search(r"<svg[\s>]", start) and not re.search(r"<html[\s>]", start):
        return Kind("svg", "drawing")
    if re.match(r"(<!--.*?-->|<\?xml[^>]*>|\s)*<(!doctype html|html|head|body)\b", start, re.S) or re.search(r"<html[\s>]", start):
        return Kind("html", "html")
    said = re.search(r"<office:document\s[^>]{0,8000}office:mimetype=[\"']application/vnd\.oasis\.opendocument\.(\w+)", text.lower())
    if said:
        return Kind(FLAT.get(said[1], "fodt"), "office")
    if re.search(r"<fictionbook[\s>]", start):
        return Kind("fb2", "office")
    if start.startswith("<?xml") or re.match(r"<[a-z][\w:.-]*[\s/>]", start) and "</" in text:
        return Kind("xml", "xml")
    return Kind("text", "text")


def decoded(raw):
    """The text that these bytes are, or None. The last character may be cut."""
    if raw.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return raw[: len(raw) & ~3].decode("utf-32", "replace")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw[: len(raw) & ~1].decode("utf-16", "replace")
    if b"\0" in raw:
        return None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as wrong:
        text = raw[: wrong.start].decode("utf-8") if wrong.start > len(raw) - 4 else raw.decode("cp1252", "replace")
    strange = sum(1 for c in text[:HEAD] if ord(c) < 32 and c not in "\t\n\r\f\v\a\b\x1b" or c == "\ufffd")
    return text if strange * 50 <= len(text) else None
