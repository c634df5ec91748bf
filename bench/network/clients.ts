import { loadSeccompProfile } from "../../src/declarations/policy/policy.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import type { Bench } from "../bench.ts";
import { type CellProject, NAMES, openCellProject } from "./cell-project.ts";
import { type Order, Orders, type RemoteClient } from "./orders.ts";
import { openOrigin } from "./origin.ts";
import type { ServerPorts } from "./server.ts";
import { openSideNetwork, PROXY_PORT, script, startScript } from "./sidecar.ts";

/** One way to the same host: the client that uses it, and how it names the host. */
export interface Way {
  readonly client: RemoteClient;
  readonly to: (protocol: "tls" | "raw") => Pick<Order, "host" | "port" | "proxy" | "protocol">;
}

/** The same client in three containers: in a cell, on the host's network, and beside a proxy. Disposing ends all of it. */
export interface Clients extends AsyncDisposable {
  readonly project: CellProject;
  readonly ways: Readonly<Record<"direct" | "tunnel" | "proxy" | "sidecar" | "lookedInto", Way>>;
}

const LOOPBACK = "127.0.0.1";

export async function openClients({ docker }: Pick<Bench, "docker">): Promise<Clients> {
  await using opening = new AsyncDisposableStack();
  const network = opening.use(await openSideNetwork(docker));
  const origin = opening.use(await openOrigin([LOOPBACK, network.gateway], Object.values(NAMES)));
  const [here, beside] = origin.ports;
  if (here === undefined || beside === undefined) throw new Error("the bench's server does not answer");
  const [client, proxy] = await Promise.all([script("client"), script("proxy")]);
  const orders = new Orders();
  // Disposed of before the project and the containers, whose programs end then.
  const [ordersHere, ordersBeside] = [await orders.listen(LOOPBACK), await orders.listen(network.gateway)];
  const project = opening.use(await openCellProject(client, here, ordersHere, origin.cert));
  const started = Promise.withResolvers<Plan>();
  const running = project.runToEnd("client", (event) => {
    if (event.type === "started") started.resolve(event.plan);
  });
  running.catch(started.reject);
  opening.defer(() => running.catch(() => {}));
  opening.use(orders);
  const plan = await started.promise;
  const like = { plan, seccomp: { corral: await loadSeccompProfile() } };
  const benchBeside = [network.gateway, String(ordersBeside)];
  opening.use(await startScript(docker, like, "host", [client, "direct", LOOPBACK, String(ordersHere)]));
  const sidecar = opening.use(
    await startScript(docker, like, network.name, [proxy, String(PROXY_PORT), ...benchBeside]),
  );
  await orders.client("proxy");
  opening.use(await startScript(docker, like, network.name, [client, "sidecar", ...benchBeside]));
  const cell = await Promise.race([
    orders.client("cell"),
    running.then(() => Promise.reject(new Error("the cell ended"))),
  ]);
  const ways: Clients["ways"] = {
    direct: { client: await orders.client("direct"), to: named(LOOPBACK, here) },
    tunnel: { client: cell, to: named(NAMES.tunnel, here) },
    proxy: { client: cell, to: named(NAMES.proxy, here, { host: "127.88.0.1", port: PROXY_PORT }) },
    sidecar: {
      client: await orders.client("sidecar"),
      to: named(network.gateway, beside, { host: sidecar.address, port: PROXY_PORT }),
    },
    // Its client speaks plain HTTP, and Corral speaks TLS to the host.
    lookedInto: { client: cell, to: () => ({ host: NAMES.lookedInto, port: here.tls, protocol: "http" }) },
  };
  const moved = opening.move();
  return { project, ways, [Symbol.asyncDispose]: () => moved.disposeAsync() };
}

function named(host: string, ports: ServerPorts[number], proxy?: Order["proxy"]): Way["to"] {
  return (protocol) => ({ host, port: ports[protocol], protocol, ...(proxy === undefined ? {} : { proxy }) });
}
