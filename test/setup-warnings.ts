/**
 * A warning of the process (a deprecated call, a leak of listeners) fails the test run: vitest reports what is thrown
 * here as an unhandled error. Test files that share a process run this more than once; it listens once.
 */
const INSTALLED = Symbol.for("corral.test.warnings");

function fail(warning: Error): void {
  throw new Error(`process warning: ${warning.stack ?? warning.message}`);
}

if (!(INSTALLED in process)) {
  Object.defineProperty(process, INSTALLED, { value: true });
  process.on("warning", fail);
}
