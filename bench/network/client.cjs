/*
 * The client of every contender, for `node -e` in a container: it takes orders from the bench, one JSON a line, and answers
 * each with its milliseconds. Arguments: its name, and host and port of the bench.
 */
const { connect, isIP } = require("node:net");
const { connect: connectTls } = require("node:tls");
const { createInterface } = require("node:readline");

const [name, benchHost, benchPort] = process.argv.slice(1);
const kept = new Map();
const bench = connect(Number(benchPort), benchHost);
bench.on("close", () => process.exit(0)).on("error", () => process.exit(1));
bench.write(`${name}\n`);
createInterface({ input: bench }).on("line", async (line) => {
  const answer = await measured(JSON.parse(line)).catch((error) => String(error));
  bench.write(`${JSON.stringify(answer)}\n`);
});

/** `kept`: on a connection that stays open, which is not measured itself. */
async function measured(order) {
  const key = JSON.stringify(order);
  const open = order.kept ? (kept.get(key) ?? (await opened(order))) : null;
  if (order.kept) kept.set(key, open);
  const begun = performance.now();
  const socket = open ?? (await opened(order));
  if (order.protocol === "raw") await received(socket, `${order.bytes}\n`, order.bytes);
  else await received(socket, `GET /${order.bytes} HTTP/1.1\r\nHost: ${order.host}:${order.port}\r\n\r\n`, null);
  const took = performance.now() - begun;
  if (open === null) socket.destroy();
  return took;
}

async function opened({ host, port, proxy, protocol }) {
  const socket = connect(proxy ? proxy.port : port, proxy ? proxy.host : host);
  socket.setNoDelay(true);
  await once(socket, "connect");
  if (proxy) await received(socket, `CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\n\r\n`, null);
  if (protocol !== "tls") return socket;
  const secure = connectTls({ socket, ...(isIP(host) ? {} : { servername: host }), rejectUnauthorized: false });
  await once(secure, "secureConnect");
  return secure;
}

/** Sends a request and awaits `bytes`; null: an HTTP answer, whose head has the number. */
function received(socket, request, bytes) {
  return new Promise((resolve, reject) => {
    let missing = bytes;
    let head = "";
    const over = (error) => {
      socket.off("data", take).off("error", over).off("end", early).pause();
      if (error) reject(error);
      else resolve();
    };
    const early = () => over(new Error("the connection ended early"));
    const take = (piece) => {
      let length = piece.length;
      if (missing === null) {
        const before = head.length;
        head += piece.toString("latin1");
        const end = head.indexOf("\r\n\r\n");
        if (end === -1) return;
        if (!/^HTTP\/1.1 200/.test(head)) return over(new Error(head.slice(0, 500)));
        missing = Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1] ?? 0);
        length -= end + 4 - before;
      }
      missing -= length;
      if (missing === 0) over(null);
    };
    socket.on("data", take).on("error", over).on("end", early).resume();
    socket.write(request);
  });
}

function once(socket, event) {
  return new Promise((resolve, reject) => socket.once(event, resolve).once("error", reject));
}
