/*
 * A proxy for CONNECT as a sidecar has it, for `node -e` in a container. It judges nothing. Arguments: its port, and host and
 * port of the bench, with which it ends.
 */
const { createServer } = require("node:http");
const { connect } = require("node:net");

const [port, benchHost, benchPort] = process.argv.slice(1);
createServer()
  .on("connect", (request, client, first) => {
    const [host, to] = request.url.split(":");
    const upstream = connect({ host, port: Number(to), noDelay: true, allowHalfOpen: true });
    upstream.on("connect", () => {
      client.setNoDelay(true);
      client.write("HTTP/1.1 200 OK\r\n\r\n");
      upstream.write(first);
      upstream.pipe(client).pipe(upstream);
    });
    upstream.on("error", () => client.destroy());
    client.on("error", () => upstream.destroy());
  })
  .listen(Number(port), () => {
    const bench = connect(Number(benchPort), benchHost);
    bench.on("close", () => process.exit(0)).on("error", () => process.exit(1));
    bench.write("proxy\n");
  });
