import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";

/** How much output a session keeps for all its commands together: the oldest files are removed first. */
const MAX_KEPT_BYTES = 256 * 1024 * 1024;

/** The directories with the whole output of one session's commands, and with their pipes; removed with the session. */
export class OutputDir implements AsyncDisposable {
  readonly path: string;
  /** Named pipes of commands that have not begun. No other user can list it. */
  readonly pipes: string;
  readonly #kept: { readonly name: string; readonly bytes: number }[] = [];
  #used = false;

  /** Below this process's own directory, so that it is reaped with it. Readable, because the cell has another user. */
  static async make(ownerDir: string, run: string): Promise<OutputDir> {
    const path = join(ownerDir, `${run}.out`);
    const pipes = join(ownerDir, `${run}.pipes`);
    await mkdir(path, { mode: 0o755 });
    await mkdir(pipes, { mode: 0o711 });
    return new OutputDir(path, pipes);
  }

  private constructor(path: string, pipes: string) {
    this.path = path;
    this.pipes = pipes;
  }

  /** True after the first file was kept. */
  get isUsed(): boolean {
    return this.#used;
  }

  /** Counts a new file, and removes the oldest files if all are too large together; the newest stays. */
  async keep(name: string, bytes: number): Promise<void> {
    if (bytes === 0) return;
    this.#used = true;
    this.#kept.push({ name, bytes });
    let total = this.#kept.reduce((sum, file) => sum + file.bytes, 0);
    while (total > MAX_KEPT_BYTES && this.#kept.length > 1) {
      const oldest = this.#kept.shift();
      if (oldest === undefined) return;
      total -= oldest.bytes;
      await rm(join(this.path, oldest.name), { force: true });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
    await rm(this.pipes, { recursive: true, force: true });
  }
}
