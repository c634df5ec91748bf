import type { Sandbox } from "../../sandbox/sandbox.ts";

/** The most hosts that one run learns; a person is not asked for more. */
const MAX_LEARNED = 64;

/**
 * The sandbox of a run whose user wants to be asked about every host: it reaches what it reached, and has a place to ask for more.
 * A worker with all of the network has nothing to learn.
 */
export function learningNetwork(sandbox: Sandbox): Sandbox {
  const { network } = sandbox;
  if (network === true) return sandbox;
  const had = network === false ? { allow: [] } : network;
  return { ...sandbox, network: { ...had, dynamic: { within: had.dynamic?.within ?? [], max: MAX_LEARNED } } };
}
