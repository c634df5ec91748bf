import { monitorEventLoopDelay } from "node:perf_hooks";
import { Counter, Gauge, type Registry } from "prom-client";

const LAG_RESOLUTION_MS = 50;

/**
 * Metrics of the process, by the names that clients of Prometheus give them. Each is measured when it is read, except the lag, which is
 * observed until this is disposed: the default metrics of the package have observers that nothing ends.
 */
export function observeProcess(registry: Registry): Disposable {
  const registers = [registry];
  const gauge = (name: string, help: string, look: () => number): void => {
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(look());
      },
    });
  };
  const started = Date.now() / 1000 - process.uptime();
  const lag = monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS });
  lag.enable();
  new Counter({
    name: "process_cpu_seconds_total",
    help: "Processor time of the service, of user and system, in seconds.",
    registers,
    collect() {
      const { user, system } = process.cpuUsage();
      this.reset();
      this.inc((user + system) / 1e6);
    },
  });
  gauge("process_start_time_seconds", "When the service started, in seconds since 1970.", () => started);
  gauge("process_resident_memory_bytes", "Memory of the service.", () => process.memoryUsage.rss());
  gauge("nodejs_heap_size_used_bytes", "Memory of the service's objects.", () => process.memoryUsage().heapUsed);
  gauge("nodejs_eventloop_lag_p99_seconds", "How late 99% of timers are at most, since it was last read.", () => {
    const late = lag.count === 0 ? 0 : lag.percentile(99) / 1e9;
    lag.reset();
    return late;
  });
  return { [Symbol.dispose]: () => void lag.disable() };
}
