import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { queueYaml } from "../../../src/declarations/corral-file.ts";
import { isOpenToOthers, serverText, settingsOf } from "../../../src/fleet/postgres/connection.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";

describe("the address of a queue", () => {
  it("verifies the server's certificate with every mode that has TLS", () => {
    const tls = (query: string) => settingsOf(`postgres://u:p%40ss@db:6000/fleets${query}`).ssl;
    expect(tls("?sslmode=disable")).toBe(false);
    expect(tls("?sslmode=require")).toEqual({ rejectUnauthorized: true });
    expect(tls("?sslmode=verify-full")).toEqual({ rejectUnauthorized: true });
    expect(tls("?sslmode=verify-ca")).toMatchObject({ rejectUnauthorized: true });
    expect(settingsOf("postgres://u:p%40ss@db:6000/fleets")).toMatchObject({
      ...{ host: "db", port: 6000, user: "u", password: "p@ss", database: "fleets" },
    });
  });

  it("has TLS without a word about it, unless its host is this machine", () => {
    const [hasTls, hasNone] = [{ rejectUnauthorized: true }, false];
    for (const [host, ssl] of [
      ["db", hasTls],
      ["10.0.0.1", hasTls],
      ["127.0.0.1.example.org", hasTls],
      ["localhost.example.org", hasTls],
      ["x?host=db", hasTls],
      ["localhost?host=127.0.0.1.example.org", hasTls],
      ["localhost", hasNone],
      ["127.0.0.2", hasNone],
      ["[::1]", hasNone],
      ["db?host=/run/postgresql", hasNone],
    ] as const) {
      const [name, query = ""] = host.split("?");
      const url = `postgres://u@${name}/fleets${query && `?${query}`}`;
      expect(settingsOf(url).ssl, url).toEqual(ssl);
      expect(isOpenToOthers(`${url}${query === "" ? "?" : "&"}sslmode=disable`), url).toBe(ssl !== false);
    }
    // An authority is named for nothing else.
    expect(() => settingsOf("postgres://u@localhost/x?sslrootcert=/nowhere/ca.pem")).toThrow(/cannot be read/);
  });

  it("may name the file of its password, of which the last line feed is no part", () => {
    const file = join(mkdtempSync(join(tmpdir(), "corral-queue-")), "password");
    onTestFinished(() => rmSync(dirname(file), { recursive: true }));
    writeFileSync(file, "p@ss word\n");
    const passwordOf = (user: string) => settingsOf(`postgres://${user}@db/fleets?passwordfile=${file}`).password;
    expect(passwordOf("u")).toBe("p@ss word");
    expect(() => passwordOf("u:secret")).toThrow("use one of them");
    writeFileSync(file, "\n");
    expect(() => passwordOf("u")).toThrow("must have one line");
    expect(() => settingsOf("postgres://u@db/fleets?passwordfile=/nowhere")).toThrow("cannot be read");
    // A project that was cloned would send any file to any server.
    const declared = (queue: string) => queueYaml.safeParse(queue).success;
    expect(declared("postgres://u@db/fleets?sslmode=verify-full")).toBe(true);
    expect(declared(`postgres://u@db/fleets?passwordfile=${file}`)).toBe(false);
  });

  it.each([
    "postgres://u:secret@db/fleets?sslmode=prefer",
    "postgres://u:secret@db/fleets?sslmode=no-verify",
    "postgres://u:secret@db/fleets?ssl=true",
    "postgres://u:secret@db/fleets?sslmode=require&sslrootcert=/nowhere/ca.pem",
    "mysql://u:secret@db/fleets",
    "secret",
  ])("that is unclear is refused, without its password in the message: %s", (url) => {
    expect(() => settingsOf(url)).toThrow(/queue/);
    expect(() => settingsOf(url)).not.toThrow(/secret/);
  });

  it("is named by the server alone", () => {
    expect(serverText("postgres://u:secret@db:6000/fleets?sslmode=require")).toBe("db:6000/fleets");
    expect(serverText("postgres://localhost/x?host=/run/postgresql")).toBe("/run/postgresql:5432/x");
  });

  it("of a server that does not answer says so, and what to do", async () => {
    const url = "postgres://u:secret@localhost/x?host=/nowhere";
    await expect(connectServer(url)).rejects.toThrow(
      /^PostgreSQL at \/nowhere:5432\/x does not answer: .*Start it, or correct the address/,
    );
    await expect(connectServer(url)).rejects.not.toThrow(/secret/);
  });
});
