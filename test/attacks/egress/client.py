"""The client in a cell: tries what a test describes, each attempt on a connection of its own, and prints a line of JSON for each.

Input: {"attempts": [{id, host, port, steps, seconds}], "atOnce": 16}. A step is [name, value]; bytes are base64.
"""
import base64, concurrent.futures, errno, json, socket, ssl, struct, sys, time

MAX_SHOWN = 6000


class Plain:
    def __init__(self, sock):
        self.sock = sock

    def send(self, data):
        self.sock.sendall(data)

    def receive(self):
        return self.sock.recv(65536)


class Tls:
    """TLS over a socket or over another one of these, with full control over how the bytes of the hello are cut."""

    def __init__(self, below, options):
        self.below = below
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if options.get("alpn"):
            context.set_alpn_protocols(options["alpn"])
        if options.get("max") == "1.2":
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=options.get("sni"))
        self.options = options
        self.first = True
        self.until(self.tls.do_handshake)

    def flush(self):
        data = self.outgoing.read()
        if not data:
            return
        pieces = [data]
        if self.first:
            pieces = cut(in_records(data, self.options.get("record")), self.options.get("segment"))
            self.first = False
        for piece in pieces:
            self.below.send(piece)
            if len(pieces) > 1:
                time.sleep(0.001)

    def until(self, act):
        while True:
            try:
                result = act()
                self.flush()
                return result
            except ssl.SSLWantReadError:
                self.flush()
                data = self.below.receive()
                if data:
                    self.incoming.write(data)
                else:
                    self.incoming.write_eof()

    def send(self, data):
        self.tls.write(data)
        self.flush()

    def receive(self):
        try:
            return self.until(lambda: self.tls.read(65536))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""


def in_records(data, size):
    if not size:
        return data
    kind, length = data[:3], struct.unpack(">H", data[3:5])[0]
    body, rest = data[5 : 5 + length], data[5 + length :]
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(kind + struct.pack(">H", len(part)) + part for part in parts) + rest


def cut(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)] if size else [data]


def named(error):
    if isinstance(error, ssl.SSLError):
        return "tls: " + str(error)
    if isinstance(error, socket.gaierror):
        return "unknown name"
    if isinstance(error, TimeoutError):
        return "open"
    return errno.errorcode.get(getattr(error, "errno", None), type(error).__name__)


def tried(case):
    """`end`: `eof`, `open` if the time is over, or why it failed. `got`: what came, as Latin-1."""
    got, total, end, started = b"", 0, "eof", time.monotonic()
    deadline = started + case.get("seconds", 10)
    sock = None

    def keep(data):
        nonlocal got, total
        total += len(data)
        got = (got + data)[:MAX_SHOWN]

    def left():
        sock.settimeout(max(0.01, deadline - time.monotonic()))

    try:
        family = socket.AF_INET6 if ":" in case["host"] else socket.AF_INET
        address = socket.getaddrinfo(case["host"], case["port"], family, socket.SOCK_STREAM)[0][4]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        left()
        sock.connect(address)
        channel = Plain(sock)
        for name, value in case["steps"]:
            left()
            if name == "send":
                channel.send(base64.b64decode(value))
            elif name == "fill":
                piece = base64.b64decode(value[0])
                for _ in range(value[1]):
                    left()
                    channel.send(piece)
            elif name == "pause":
                time.sleep(value / 1000)
            elif name == "tls":
                channel = Tls(channel, value)
            elif name == "until":
                while value.encode("latin-1") not in got:
                    left()
                    data = channel.receive()
                    if not data:
                        break
                    keep(data)
            elif name == "end":
                sock.shutdown(socket.SHUT_WR)
            elif name == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
                return {"id": case["id"], "end": "closed", "got": got.decode("latin-1"), "bytes": total, "ms": 0}
        while True:
            left()
            data = channel.receive()
            if not data:
                break
            keep(data)
    except OSError as error:
        end = named(error)
        # What a server said before it closed is still there.
        try:
            while sock is not None and (data := sock.recv(65536)):
                keep(data)
        except OSError:
            pass
    except ValueError as error:
        end = "value: " + str(error)
    finally:
        if sock is not None:
            sock.close()
    ms = round((time.monotonic() - started) * 1000)
    return {"id": case["id"], "end": end, "got": got.decode("latin-1"), "bytes": total, "ms": ms}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    with concurrent.futures.ThreadPoolExecutor(asked.get("atOnce", 16)) as pool:
        for result in pool.map(tried, asked["attempts"]):
            print(json.dumps(result), flush=True)
