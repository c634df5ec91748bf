import { it } from "vitest";
import { contractInCells } from "../contract-harness.ts";
import { listeningContract } from "../listening.contract.ts";
import { absence, openBwrapHere } from "./bwrap.ts";

const absent = await absence();
if (absent === null) {
  contractInCells("bwrap", openBwrapHere);
  listeningContract("of bubblewrap", openBwrapHere);
} else it.skip(`the bwrap driver: ${absent}`);
