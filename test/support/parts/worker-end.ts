const endings: (() => void)[] = []

function end(): void {
  for (const ending of endings) ending()
  process.kill(process.pid, 'SIGTERM')
}

/** Runs `ending`, which may not wait, as vitest ends this worker: it sends SIGTERM, on which Node runs no handler of `exit`. */
export function onWorkerEnd(ending: () => void): void {
  if (endings.length === 0) process.once('SIGTERM', end)
  endings.push(ending)
}
