/*
 * What Corral uses of `node:http`. An `import` of that module reads every property of it, and one of them loads the whole of `fetch`: 15 ms
 * of a processor in every short command.
 */

export const { Agent, createServer, request } = process.getBuiltinModule("node:http");
