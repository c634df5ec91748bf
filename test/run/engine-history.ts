import type Docker from "dockerode";

/** What the Engine itself remembers: the runs of one tree for which it made a container since `sinceMs`, in that order. */
export async function runsWithContainers(docker: Docker, root: string, sinceMs: number): Promise<string[]> {
  const filters = { type: ["container"], event: ["create"], label: [`dev.corral.root=${root}`] };
  // The client's types know neither fractions of seconds nor that the answer is a stream.
  const options = {
    since: seconds(sinceMs),
    until: seconds(Date.now()),
    filters,
  } as unknown as Docker.GetEventsOptions;
  const stream = (await docker.getEvents(options)) as unknown as AsyncIterable<Buffer>;
  const text = Buffer.concat(await Array.fromAsync(stream)).toString("utf8");
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => (JSON.parse(line) as { Actor: { Attributes: { name: string } } }).Actor.Attributes.name);
}

/** In the Engine's fractional form; as of a whole second it would wait for that second to pass. */
function seconds(ms: number): string {
  return (ms / 1000).toFixed(3);
}
