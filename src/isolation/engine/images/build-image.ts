import { Readable } from "node:stream";
import { ImageBuildError } from "../../port/images.ts";
import type { BootstrapRequest } from "./bootstrap.ts";
import { BASE_LABEL, FINGERPRINT_LABEL, fingerprint, type ImageSource, packedFiles } from "./catalog.ts";
import { readMessages } from "./engine-messages.ts";
import { npmPackages } from "./npm-packages.ts";

export interface BuildRequest extends BootstrapRequest {
  readonly source: ImageSource;
  /** The id of the image that it is built on. */
  readonly baseId: string;
  /** `host` if the Engine has no network of its own; else its default. */
  readonly network?: "host" | undefined;
  /** Of the user, for programs of this machine that fetch packages with its settings. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

const TAIL_LINES = 20;

/** Builds one image from its folder with the Engine's own builder. */
export async function buildImage(request: BuildRequest): Promise<void> {
  const { docker, source, baseId, network, proxies, onProgress, signal } = request;
  const { Arch: architecture } = await docker.version();
  const context = await packedFiles([...source.context.files, ...(await npmPackages({ ...request, architecture }))]);
  const answer = await docker.buildImage(Readable.from([context]), {
    t: source.tag,
    // The builder knows the usual proxy variables and does not keep them in the image.
    buildargs: { ...proxies, BASE: baseId },
    labels: { [FINGERPRINT_LABEL]: fingerprint(source, baseId), [BASE_LABEL]: baseId },
    rm: true,
    forcerm: true,
    ...(network && { networkmode: network }),
    ...(signal && { abortSignal: signal }),
  });
  let step: string | undefined;
  const tail: string[] = [];
  for await (const message of readMessages(answer)) {
    if (message.error)
      throw new ImageBuildError(source.tag, failure(message.error, step, tail), { cause: message.error });
    for (const line of (message.stream ?? "").split(/[\r\n]+/).filter((text) => text.trim() !== "")) {
      step = /^Step (\d+\/\d+ : .*)/.exec(line)?.[1]?.replace(" : ", " ") ?? step;
      tail.push(line);
      if (tail.length > TAIL_LINES) tail.shift();
      onProgress({ image: source.tag, ...(step && { step }), text: line });
    }
  }
}

function failure(error: string, step: string | undefined, tail: readonly string[]): string {
  const title = `the build failed at step ${step ?? "0, before the first"}`;
  return [title, ...tail.map((line) => `  ${line}`), error.trim()].join("\n");
}
