import { spawn } from "node:child_process";

const TAKE = `
$SIG{IO} = "IGNORE"; $| = 1; my @held;
for (@ARGV) { open(my $file, "+<", $_) or die; fcntl($file, 1024, 1) or die "no lease: $!"; push @held, $file }
print "held\\n"; sleep 300`;

/** Another process that has a write lease on each of these files, and does not give it up when the kernel asks for it. */
export async function leaseHolder(...paths: string[]): Promise<AsyncDisposable> {
  const holder = spawn("perl", ["-e", TAKE, ...paths], { stdio: ["ignore", "pipe", "inherit"] });
  const gone = new Promise((resolve) => holder.once("exit", resolve));
  const held = await Promise.race([gone.then(() => false), new Promise((done) => holder.stdout.once("data", done))]);
  if (held === false) throw new Error("the leases could not be taken");
  return {
    [Symbol.asyncDispose]: async () => {
      holder.kill("SIGKILL");
      await gone;
    },
  };
}
