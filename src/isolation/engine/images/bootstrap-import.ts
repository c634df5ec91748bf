import { spawn } from "node:child_process";
import { once } from "node:events";
import type Docker from "dockerode";
import { ImageBuildError } from "../../port/images.ts";
import { readMessages } from "./engine-messages.ts";
import { SYSTEM_PATH } from "./host-command.ts";

export interface ImportRequest {
  readonly docker: Docker;
  /** The folder that becomes the image's root. */
  readonly root: string;
  /** `name:version`. */
  readonly tag: string;
  readonly signal?: AbortSignal | undefined;
}

/** Streams a folder into the Engine as an image of one layer. */
export async function importRoot({ docker, root, tag, signal }: ImportRequest): Promise<void> {
  const [repo, version] = tag.split(":");
  const tar = spawn("tar", [...TAR_OPTIONS, "--directory", root, "--create", "."], {
    stdio: ["ignore", "pipe", "ignore"],
    env: { PATH: SYSTEM_PATH },
  });
  const ended = once(tar, "close");
  try {
    const changes = [`ENV PATH=${SYSTEM_PATH}`, 'CMD ["/bin/sh"]'];
    const answer = await docker.importImage(tar.stdout, {
      repo,
      tag: version,
      changes,
      ...(signal && { abortSignal: signal }),
    });
    for await (const message of readMessages(answer)) {
      if (message.error) throw new ImageBuildError(tag, `the Engine did not take it: ${message.error}`);
    }
  } finally {
    if (tar.exitCode === null) tar.kill("SIGKILL");
  }
  const [status] = await ended;
  if (status !== 0) throw new ImageBuildError(tag, `tar ended with status ${status}`);
}

/** What the kernel puts into these folders is not the image's. */
const TAR_OPTIONS = ["--numeric-owner", "--exclude=./dev/*", "--exclude=./proc/*", "--exclude=./sys/*"];
