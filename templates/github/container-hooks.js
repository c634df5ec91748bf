/*
 * Container hooks of a runner of GitHub: a job with `container:` has a session of Corral, without a network. docs/ci.md shows how a runner gets them.
 * Standard input is the command, as JSON. The runner has two variables: ACTIONS_RUNNER_CONTAINER_HOOKS names a copy of this file, and CORRAL_PROJECT a folder with corral.yaml, whose workers are what `image:` may name.
 */
void (async () => {
  const { spawnSync } = await import("node:child_process");
  const { randomBytes } = await import("node:crypto");
  const { readFileSync, writeFileSync } = await import("node:fs");

  const fail = (message) => {
    process.stderr.write(`corral: ${message}\n`);
    process.exit(1);
  };
  const corral = (args, input = null) => {
    const { status, error } = spawnSync("corral", args, {
      ...(input === null ? {} : { input }),
      // Only what a step prints is for the log of the step.
      stdio: input === null ? ["ignore", 2, "inherit"] : ["pipe", "inherit", "inherit"],
    });
    if (error) fail(`corral cannot be started: ${error.message}`);
    return status ?? 1;
  };

  /** What a session cannot have, or has by its worker alone. */
  const refuse = ({ image, dockerfile, createOptions, userMountVolumes, portMappings }) => {
    if (dockerfile) fail("an action with a Dockerfile would be built on this machine; it is refused");
    if (!/^[a-z][a-z0-9-]{0,60}$/.test(image ?? "")) fail("image must name a worker of the runner's project");
    if (createOptions) fail("options of a container are those of its worker; remove `options`");
    if (userMountVolumes?.length) fail("mounts are those of the worker; remove `volumes`");
    if (portMappings?.length) fail("no port of a session is opened on this machine; remove `ports`");
  };
  const start = (worker) => {
    if (!process.env.CORRAL_PROJECT) fail("CORRAL_PROJECT names no project of the workers");
    const session = `github-${randomBytes(6).toString("hex")}`;
    const from = ["--project", process.env.CORRAL_PROJECT, "--name", session, "--end-after", "24h"];
    const status = corral(["session", "start", worker, ...from]);
    if (status !== 0) fail(`the session of the worker ${worker} did not start`);
    return session;
  };
  const word = (text) => `'${String(text).replaceAll("'", `'\\''`)}'`;
  /** Values of variables may be secret, so they are in no list of arguments of this machine, and in no record of Corral. */
  const execute = (session, { entryPoint, entryPointArgs, environmentVariables, prependPath, workingDirectory }) => {
    const all = { CI: "true", GITHUB_ACTIONS: "true", HOME: "/github/home", ...environmentVariables };
    const env = Object.entries(all).map(([name, value]) => word(`${name}=${value}`));
    const before = [prependPath ?? []].flat().filter((path) => path !== "");
    if (before.length > 0) env.push(`PATH=${word(before.join(":"))}:"$PATH"`);
    const command = [entryPoint, ...(entryPointArgs ?? [])].filter((one) => one !== null && one !== undefined);
    if (command.length === 0) fail("the step names no program");
    const script = `cd ${word(workingDirectory ?? "/")} && exec env ${env.join(" ")} ${command.map(word).join(" ")} < /dev/null\n`;
    return corral(["session", "exec", "--interactive", session, "--", "sh", "-s"], script);
  };

  const { command, responseFile, args, state } = JSON.parse(readFileSync(0, "utf8"));
  const session = state?.session;
  if (command !== "prepare_job" && command !== "cleanup_job" && !/^github-[0-9a-f]{12}$/.test(session ?? ""))
    fail("this job has no session");
  switch (command) {
    case "prepare_job": {
      if (!args?.container) fail("a job without `container` would run on this machine; it is refused");
      if (args.services?.length) fail("services are those of the worker; remove `services` from the job");
      refuse(args.container);
      const started = start(args.container.image);
      writeFileSync(
        responseFile,
        JSON.stringify({ state: { session: started }, context: { container: { id: started } }, isAlpine: false }),
      );
      return;
    }
    case "run_script_step":
      process.exit(execute(session, args));
      break;
    case "run_container_step": {
      refuse(args);
      const own = start(args.image);
      const status = execute(own, args);
      process.exit(corral(["session", "stop", own]) || status);
      break;
    }
    case "cleanup_job":
      if (session !== undefined) process.exit(corral(["session", "stop", session]));
      return;
    default:
      fail("the command is prepare_job, run_script_step, run_container_step or cleanup_job");
  }
})();
