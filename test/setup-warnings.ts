/**
 * A warning of the process (a deprecated call, a leak of listeners) fails the test run: vitest reports what is thrown
 * here as an unhandled error.
 */
process.on("warning", (warning) => {
  throw new Error(`process warning: ${warning.stack ?? warning.message}`);
});
