/**
 * Checks if an Engine answers. Exit status: 0 if one answers; 3 if there is none at the default place, so that one can be
 * installed or started; 1 if that would not help (a wrong setting, no permission).
 */
import { connect } from "../src/isolation/engine/open.ts";
import { EngineUnavailableError } from "../src/isolation/port/engine.ts";

try {
  await connect(process.env);
} catch (error) {
  if (!(error instanceof EngineUnavailableError)) throw error;
  process.stderr.write(`${error.message}\n`);
  const absent = error.source === "default" && (error.reason === "no_socket" || error.reason === "refused");
  process.exitCode = absent ? 3 : 1;
}
