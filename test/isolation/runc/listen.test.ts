import { listeningContract } from "../listening.contract.ts";
import { openRunc } from "./runc.ts";

listeningContract("of runc", openRunc);
