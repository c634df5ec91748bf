import { contractInCells } from "../contract-harness.ts";
import { openRunc } from "./runc.ts";

contractInCells("runc", openRunc);
