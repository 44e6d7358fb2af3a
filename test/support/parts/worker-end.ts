const endings: (() => void)[] = []

function end(): void {
  for (const ending of endings) ending()
  process.kill(process.pid, 'SIGTERM')
}

/** Runs the synchronous `ending` at the end of this worker, which vitest ends by SIGTERM, without Node's `exit` handlers. */
export function onWorkerEnd(ending: () => void): void {
  if (endings.length === 0) process.once('SIGTERM', end)
  endings.push(ending)
}
