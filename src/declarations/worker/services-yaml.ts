import { z } from "zod";
import { named, nameFault } from "../terms/names.ts";
import { command } from "../terms/terms.ts";
import { duration, map, namedMap } from "../yaml/shape.ts";

/** What runs beside a worker, in a container of its own, from before the worker starts until it has ended. */
export interface ServiceDefinition {
  /** By which the worker reaches it, as it does by `localhost`. */
  readonly name: string;
  /** The worker of the project whose command it is. */
  readonly worker: string;
  /** The only ports of it that the worker reaches, at the same numbers. */
  readonly ports: readonly number[];
  /** A command of its container that succeeds when it is ready; absent: it is when its ports take connections. */
  readonly ready?: readonly string[];
  /** How long it may take to be ready. */
  readonly readyWithinMs: number;
}

export const MAX_SERVICES = 8;
const MAX_PORTS = 8;
const MAX_READY_MS = 10 * 60_000;

/** It becomes the name of a host in the worker's container. */
export function serviceNameFault(name: string): string | null {
  if (!/^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name))
    return "must be 1 to 63 small letters, digits or `-`, begin with a letter, and not end with `-`";
  return /^(localhost|corral|ip6-.*)$/.test(name) ? "is reserved: it is a name of the container itself" : null;
}

/** Where a service is reached, and when it is ready. */
export const serviceAccess = {
  ports: z.array(z.int().min(1).max(65_535)).min(1).max(MAX_PORTS),
  ready: command.optional(),
  ready_within: duration.refine((ms) => ms <= MAX_READY_MS, "must be at most `10m`").prefault("1m"),
};

const service = map({ worker: named(nameFault), ...serviceAccess });

/** `services` of a worker. */
export const services = () => namedMap(service, serviceNameFault, MAX_SERVICES).superRefine(refuseSamePort);

export type ServicesYaml = z.output<ReturnType<typeof services>>;

export function servicesOf(yaml: ServicesYaml): ServiceDefinition[] {
  return [...yaml].map(([name, { worker, ports, ready, ready_within: readyWithinMs }]) => ({
    name,
    worker,
    ports,
    ...(ready === undefined ? {} : { ready }),
    readyWithinMs,
  }));
}

/** All of them are at the worker's own `localhost`. */
export function refuseSamePort(
  all: ReadonlyMap<string, { readonly ports: readonly number[] }>,
  context: z.core.$RefinementCtx,
): void {
  const taken = new Set<number>();
  for (const [name, { ports }] of all) {
    for (const [index, port] of ports.entries()) {
      const message = `${port} is a port of another service, or listed twice; give this one another port`;
      if (taken.has(port)) context.addIssue({ code: "custom", input: port, path: [name, "ports", index], message });
      taken.add(port);
    }
  }
}
