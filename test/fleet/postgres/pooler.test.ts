import { createConnection, createServer } from "node:net";
import { join } from "node:path";
import { expect, it } from "vitest";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import { serverPrograms, startServer } from "./server-fixture.ts";

/** As a pooler does that was told to ignore the start parameter `options`. */
function withoutOptions(startup: Buffer): Buffer {
  const words = startup.subarray(8).toString("latin1").split("\0");
  const kept = words.flatMap((name, at) =>
    at % 2 === 0 && name !== "" && name !== "options" ? [name, words[at + 1]] : [],
  );
  const body = Buffer.from(`${kept.join("\0")}\0\0`, "latin1");
  const head = Buffer.from(startup.subarray(0, 8));
  head.writeUInt32BE(8 + body.length);
  return Buffer.concat([head, body]);
}

it.skipIf(serverPrograms() === null)(
  "a pooler that drops the search_path of Corral is refused, unless the user's own has no schema of others",
  async () => {
    await using server = await startServer();
    const { searchParams } = new URL(server.url);
    const behind = createConnection.bind(null, join(searchParams.get("host") ?? server.dir, ".s.PGSQL.5432"));
    await using pooler = createServer((client) => {
      const to = behind();
      client.once("data", (startup: Buffer) => {
        to.write(withoutOptions(startup));
        client.pipe(to).pipe(client);
      });
      for (const socket of [client, to]) socket.on("error", () => {});
    });
    const path = join(server.dir, ".s.PGSQL.6000");
    await new Promise<void>((resolve) => pooler.listen(path, resolve));
    const url = `postgres://postgres@localhost:6000/postgres?host=${server.dir}`;

    await expect(connectServer(url)).rejects.toThrow(/ignores the search_path.*ALTER ROLE/);
    {
      await using db = await connectServer(server.url);
      await db.query("ALTER ROLE postgres SET search_path = pg_catalog");
    }
    await using db = await connectServer(url);
    expect(await db.query("SELECT 1 AS n")).toEqual([{ n: 1 }]);
  },
);
