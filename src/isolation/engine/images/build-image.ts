import { Readable } from "node:stream";
import { type ContextFile, ImageBuildError } from "../../port/images.ts";
import { type BootstrapRequest, readMessages } from "./bootstrap.ts";
import { packedFiles } from "./catalog.ts";

export interface BuildRequest extends Omit<BootstrapRequest, "stateDir"> {
  readonly tag: string;
  /** What people know it by. */
  readonly shownAs: string;
  readonly files: readonly ContextFile[];
  readonly arguments: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  /** `host` if the Engine has no network of its own; else its default. */
  readonly network?: "host" | undefined;
}

const TAIL_LINES = 20;

/** Builds one image with the Engine's own builder. */
export async function buildImage(request: BuildRequest): Promise<void> {
  const { docker, tag, shownAs, files, labels, network, proxies, onProgress, signal } = request;
  const answer = await docker.buildImage(Readable.from([await packedFiles(files)]), {
    t: tag,
    // The builder knows the usual proxy variables and does not keep them in the image.
    buildargs: { ...proxies, ...request.arguments },
    labels,
    rm: true,
    forcerm: true,
    ...(network && { networkmode: network }),
    ...(signal && { abortSignal: signal }),
  });
  let step: string | undefined;
  const tail: string[] = [];
  for await (const message of readMessages(answer)) {
    if (message.error) throw new ImageBuildError(shownAs, failure(message.error, step, tail), { cause: message.error });
    for (const line of (message.stream ?? "").split(/[\r\n]+/).filter((text) => text.trim() !== "")) {
      step = /^Step (\d+\/\d+ : .*)/.exec(line)?.[1]?.replace(" : ", " ") ?? step;
      tail.push(line);
      if (tail.length > TAIL_LINES) tail.shift();
      if (!step?.includes(" LABEL dev.corral.")) onProgress({ image: shownAs, ...(step && { step }), text: line });
    }
  }
}

function failure(error: string, step: string | undefined, tail: readonly string[]): string {
  const title = `the build failed at step ${step ?? "0, before the first"}`;
  return [title, ...tail.map((line) => `  ${line}`), error.trim()].join("\n");
}
