import type { Machine } from "./report.ts";

/** What the numbers depend on, in one line. */
export function machineText({ cores, processor, memoryBytes, kernel, node, engine, runc }: Machine): string {
  return [
    `${cores} ${cores === 1 ? "core" : "cores"}${processor === "" ? "" : ` (${processor})`}`,
    `${Math.round(memoryBytes / 1024 ** 3)} GB`,
    `Linux ${kernel}`,
    `Docker Engine ${engine}`,
    ...(runc === null ? [] : [`runc ${runc}`]),
    `Node ${node}`,
  ].join(", ");
}

export function loadText({ loadBefore, loadAfter }: Machine): string {
  return `load ${loadBefore.toFixed(1)} before, ${loadAfter.toFixed(1)} after`;
}
