import { type Contender, interleaved } from "../measure.ts";
import { type CellProject, MANY_HOSTS, type WorkerName } from "../network/cell-project.ts";
import { type Clients, openClients } from "../network/clients.ts";
import { CELL_ALONE, CELL_LISTED, DIRECT, LOOKED_INTO, PROXY, SIDECAR, TUNNEL } from "../outcome/names.ts";
import { groupOf } from "../outcome/report.ts";
import type { Suite } from "./suite.ts";

const MB = 1000 ** 2;
const SMALL_BYTES = 100;

/** One host, reached in different ways by the same client in containers with the same limits. */
export const NETWORK: Suite = {
  async measure(bench) {
    const { requestRounds, downloadRounds, downloadBytes, runRounds } = bench.sizes;
    await using clients = await openClients(bench);
    const request = (kept: boolean): Contender[] => all(clients, "tls", (ms) => ms, { bytes: SMALL_BYTES, kept });
    const download = (protocol: "tls" | "raw"): Contender[] =>
      all(clients, protocol, (ms) => (downloadBytes / MB / ms) * 1000, { bytes: downloadBytes, kept: false });
    const size = `${downloadBytes / MB} MB`;
    const groups = [
      groupOf("connect", "TLS: connect and one request", "ms", await interleaved(request(false), requestRounds)),
      groupOf("request", "TLS: one request, connected before", "ms", await interleaved(request(true), requestRounds)),
      groupOf("download", `TCP: a download of ${size}`, "MB/s", await interleaved(download("raw"), downloadRounds)),
      groupOf("download-tls", `TLS: a download of ${size}`, "MB/s", await interleaved(download("tls"), downloadRounds)),
      groupOf(
        "start",
        "From a run to its worker's first byte",
        "ms",
        await interleaved(starts(clients.project), runRounds),
      ),
    ];
    return { groups };
  },
};

function all(
  { ways }: Clients,
  protocol: "tls" | "raw",
  value: (ms: number) => number,
  what: { readonly bytes: number; readonly kept: boolean },
): Contender[] {
  const named = {
    [DIRECT]: ways.direct,
    [SIDECAR]: ways.sidecar,
    [TUNNEL]: ways.tunnel,
    [PROXY]: ways.proxy,
    ...(protocol === "tls" ? { [LOOKED_INTO]: ways.lookedInto } : {}),
  };
  return Object.entries(named).map(([name, { client, to }]) => ({
    names: [name],
    once: async () => [value(await client.measure({ ...to(protocol), ...what }))],
  }));
}

function starts(project: CellProject): Contender[] {
  const start = (name: string, worker: WorkerName): Contender => ({
    names: [name],
    async once() {
      const begun = performance.now();
      let firstByte = Number.NaN;
      await project.runToEnd(worker, ({ type, worker: who }) => {
        if (type === "output" && who === worker && Number.isNaN(firstByte)) firstByte = performance.now() - begun;
      });
      return [firstByte];
    },
  });
  return [
    start(CELL_ALONE, "alone"),
    start(CELL_LISTED, "one"),
    start(`Corral: an allow list of ${MANY_HOSTS} hosts`, "many"),
  ];
}
