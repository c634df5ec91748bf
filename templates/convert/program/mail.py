"""Mail as a list of messages: their headers, their text, and what is attached. eml and mbox by Python's own parser, msg by its streams."""

import email
import email.policy
import mailbox
import os
import re

import ole
from work import NotPossible

HEADERS = ("From", "To", "Cc", "Date", "Subject")
MAX_MESSAGES = 10_000
#: Properties of a msg, by their numbers in MAPI.
MSG_TEXT, MSG_HTML, MSG_DATA = "1000", "1013", "3701"
MSG_HEADERS = {"Subject": "0037", "From": "0C1A", "Address": "0C1F", "To": "0E04", "Cc": "0E03"}


class Message:
    def __init__(self, headers, text, html, attached):
        self.headers = headers
        self.text = text
        #: Bytes, or None.
        self.html = html
        #: Pairs of a name and bytes.
        self.attached = attached


def messages(work, path, kind):
    if kind.name == "msg":
        yield msg(ole_of(path))
        return
    if kind.name == "eml":
        with open(path, "rb") as file:
            yield parsed(email.message_from_binary_file(file, policy=email.policy.compat32))
        return
    box = mailbox.mbox(path, factory=None, create=False)
    for count, one in enumerate(box):
        if count >= MAX_MESSAGES:
            work.note(f"only the first {MAX_MESSAGES} messages are read")
            return
        yield parsed(one)


def ole_of(path):
    try:
        return ole.Ole(path)
    except ole.Broken as why:
        raise NotPossible("damaged", str(why)) from None


def parsed(message):
    headers = [(name, header_text(message.get(name))) for name in HEADERS if message.get(name)]
    text, html, attached = [], [], []
    for part in leaves(message):
        name = part.get_filename()
        body = part.get_content_type() if not name and part.get_content_disposition() != "attachment" else None
        if part.get_content_type() == "message/rfc822":
            inner = part.get_payload()
            if isinstance(inner, list) and inner:
                attached.append((header_text(name) if name else "message.eml", inner[0].as_bytes()))
            continue
        data = part.get_payload(decode=True) or b""
        if body == "text/plain":
            text.append(decoded(data, part.get_content_charset()))
        elif body == "text/html":
            html.append(with_charset(data, part.get_content_charset()))
        elif data:
            attached.append((header_text(name) if name else "unnamed", data))
    return Message(headers, "\n".join(text), b"\n".join(html) or None, attached)


def leaves(part):
    """What is no group of others; a message inside of a message is one thing."""
    inner = part.get_payload()
    if part.get_content_type() != "message/rfc822" and isinstance(inner, list):
        for one in inner:
            yield from leaves(one)
    else:
        yield part


def header_text(raw):
    try:
        from email.header import decode_header, make_header

        return re.sub(r"\s+", " ", str(make_header(decode_header(str(raw)))))
    except Exception:
        return re.sub(r"\s+", " ", str(raw))


def decoded(data, charset):
    for one in (charset, "utf-8"):
        try:
            return data.decode(one or "utf-8")
        except (LookupError, UnicodeError):
            continue
    return data.decode("cp1252", "replace")


def with_charset(data, charset):
    return decoded(data, charset).encode() if charset else data


def msg(file, entry=0, depth=0):
    values, attached = {}, []
    for name, at in file.children(entry):
        found = re.fullmatch(r"__substg1\.0_([0-9A-F]{4})([0-9A-F]{4})", name)
        if found and not file.is_storage(at):
            values[found[1]] = msg_value(file.stream(at), found[2])
        elif name.startswith("__attach_version1.0") and file.is_storage(at):
            attached += msg_attachment(file, at, depth)
    headers = [(name, str(values[code]).strip("\0")) for name, code in MSG_HEADERS.items() if str(values.get(code) or "").strip("\0")]
    html = values.get(MSG_HTML)
    return Message(headers, str(values.get(MSG_TEXT) or ""), html.encode() if isinstance(html, str) else html, attached)


def msg_value(data, kind):
    if kind == "001F":
        return data.decode("utf-16-le", "replace")
    if kind == "001E":
        return decoded(data, None)
    return data


def msg_attachment(file, entry, depth):
    values = {}
    for name, at in file.children(entry):
        found = re.fullmatch(r"__substg1\.0_([0-9A-F]{4})([0-9A-F]{4})", name)
        if found and not file.is_storage(at):
            values[found[1]] = msg_value(file.stream(at), found[2])
        elif found and found[1] == MSG_DATA and depth < 3:
            inner = msg(file, at, depth + 1)
            body = "\n".join([*(f"{key}: {value}" for key, value in inner.headers), "", inner.text])
            return [("message.txt", body.encode()), *inner.attached]
    name = values.get("3707") or values.get("3704") or values.get("3001") or "unnamed"
    data = values.get(MSG_DATA)
    return [(os.path.basename(str(name).replace("\\", "/").strip("\0")), data)] if isinstance(data, bytes) and data else []
