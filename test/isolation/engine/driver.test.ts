import { contractInCells } from "../contract-harness.ts";
import { openEngine } from "./engine.ts";

contractInCells("docker", openEngine);
