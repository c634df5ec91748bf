import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import type { Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Cell } from "../../src/isolation/port/cell.ts";
import type { Driver } from "../../src/isolation/port/driver.ts";
import type { NetworkPlace } from "../../src/sandbox/network/rule.ts";
import { type CellAsked, cellOf } from "./engine/engine.ts";
import type { Planned } from "./pinned-plan.ts";

export const HTTP: NetworkPlace = { address: "127.88.1.1", port: 80, host: "a.example" };
export const HTTPS: NetworkPlace = { address: "127.88.1.1", port: 443, host: "a.example" };

/** A driver whose cells are listened in. */
export interface Listened extends AsyncDisposable {
  readonly driver: Driver;
  plan(asked: CellAsked): Promise<Planned>;
}

/** A cell behind its gate, and what it prints. */
export async function waitingCell(
  { driver, plan: planned }: Pick<Listened, "driver" | "plan">,
  script: string,
): Promise<{ cell: Cell; printed: () => string }> {
  const { plan, pins } = await planned({ command: ["sh", "-c", script] });
  let text = "";
  const onOutput = (_: string, chunk: Buffer): void => {
    text += chunk;
  };
  const { signal } = new AbortController();
  return { cell: cellOf(await driver.start({ plan, pins, signal, onOutput })), printed: () => text };
}

/** Columns of the tables of sockets in `/proc/self/net`: which has the inode. */
const INODE_COLUMNS = { unix: 6, tcp: 9, tcp6: 9 };

/**
 * Descriptors of this process that are sockets in another network than its own. Those of its own network are connections to the Engine
 * and to helpers, which come and go. In one turn, so that none is opened or closed meanwhile.
 */
export function socketsElsewhere(): number {
  const inodes = Object.entries(INODE_COLUMNS).flatMap(([table, column]) =>
    readFileSync(`/proc/self/net/${table}`, "latin1")
      .split("\n")
      .map((line) => line.trim().split(/ +/)[column]),
  );
  const own = new Set(inodes.map((inode) => `socket:[${inode}]`));
  return readdirSync("/proc/self/fd").filter((name) => {
    const link = linkAt(`/proc/self/fd/${name}`);
    return link.startsWith("socket:") && !own.has(link);
  }).length;
}

/** The descriptor that listed the others is closed. */
function linkAt(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}

const CLOSED = { timeout: 30_000 };

/** What listening in the network of a cell means, whatever made the cell. */
export function listeningContract(way: string, open: () => Promise<Listened>): void {
  let listened: Listened;
  const waiting = (script: string) => waitingCell(listened, script);
  describe(`listening in the network of a cell ${way}`, () => {
    beforeAll(async () => {
      listened = await open();
    });
    afterAll(() => listened[Symbol.asyncDispose]());

    it("answers at the places that were asked for, and nowhere else", async () => {
      const script = `curl -s http://127.88.1.1/; curl -s http://127.88.1.1:443/
      curl -s http://127.88.1.1:81/ || echo "none at 81: $?"; curl -s http://127.88.1.2/ || echo "none at .2: $?"`;
      const { cell, printed } = await waiting(script);
      await using _ = cell;
      const answer = ({ port }: NetworkPlace, socket: Socket): void => {
        socket.on("error", () => {}).resume();
        socket.end(`HTTP/1.0 200 OK\r\n\r\nfrom ${port}\n`);
      };
      const listening = await cell.listen([HTTP, HTTPS], answer);
      expect(listening.ok).toBe(true);
      cell.release(Buffer.alloc(0));
      await cell.exit;
      expect(printed()).toBe("from 80\nfrom 443\nnone at 81: 7\nnone at .2: 7\n");
      if (listening.ok) await listening[Symbol.asyncDispose]();
    });

    it("lets a client that has sent everything wait for its answer", async () => {
      const { cell, printed } = await waiting(
        `perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new("127.88.1.1:80"); print $s "all"; shutdown $s, 1; print <$s>'`,
      );
      await using _ = cell;
      const listening = await cell.listen([HTTP], (_place, socket) => {
        let got = "";
        socket.on("data", (chunk) => {
          got += chunk;
        });
        socket.on("end", () => setTimeout(() => socket.end(`got ${got}\n`), 20));
      });
      cell.release(Buffer.alloc(0));
      await cell.exit;
      expect(printed()).toBe("got all\n");
      if (listening.ok) await listening[Symbol.asyncDispose]();
    });

    it("refuses an address that a program of the cell has taken, and then listens nowhere", async () => {
      const { cell, printed } = await waiting(
        `perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => "0.0.0.0:8443", Listen => 1) or die; $| = 1; print "taken\n"; sleep 60'`,
      );
      await using _ = cell;
      cell.release(Buffer.alloc(0));
      while (!printed().includes("taken")) await new Promise((later) => setTimeout(later, 20));
      const before = socketsElsewhere();
      // Not every cell lets its programs have a port below 1024.
      const listening = await cell.listen([HTTP, { ...HTTPS, port: 8443 }], () => {});
      expect(listening).toEqual({ ok: false, reason: "127.88.1.1:8443 cannot be opened (EADDRINUSE)" });
      await expect.poll(socketsElsewhere, CLOSED).toBe(before);
    });

    it("leaves no socket when it is closed, and no process", async () => {
      const { cell } = await waiting("true");
      await using _ = cell;
      const before = socketsElsewhere();
      const places = Array.from({ length: 100 }, (_, n) => ({
        address: `127.88.1.${n + 1}`,
        port: 443,
        host: `h${n}.example`,
      }));
      const listening = await cell.listen(places, () => {});
      if (!listening.ok) throw new Error(listening.reason);
      expect(socketsElsewhere()).toBe(before + 100);
      await listening[Symbol.asyncDispose]();
      await expect.poll(socketsElsewhere, CLOSED).toBe(before);
    });

    it("refuses a cell that is gone", async () => {
      const { cell } = await waiting("true");
      await cell[Symbol.asyncDispose]();
      await expect(cell.listen([HTTP], () => {})).rejects.toMatchObject({ name: "EngineTrouble" });
    });
  });
}
