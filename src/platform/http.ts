/*
 * What Corral uses of `node:http`. An `import` of that module reads every property of it, and one of them loads the whole of `fetch`: 15 ms
 * of a processor in every short command.
 */

export const { Agent, createServer, request } = process.getBuiltinModule("node:http");

/** The one `Host` of a request, in lower case; null: it has none, or several. Node keeps the first, and a proxy may have checked another one. */
export function onlyHost(rawHeaders: readonly string[]): string | null {
  const hosts = rawHeaders.filter((_, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === "host");
  return hosts.length === 1 ? (hosts[0]?.toLowerCase() ?? null) : null;
}
