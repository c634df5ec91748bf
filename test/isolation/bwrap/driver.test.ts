import { it } from "vitest";
import { contractInCells } from "../contract-harness.ts";
import { absence, openBwrapHere } from "./bwrap.ts";

const absent = await absence();
if (absent === null) contractInCells("bwrap", openBwrapHere);
else it.skip(`the bwrap driver: ${absent}`);
