import type { TestServer } from './test-server.ts'

/** Fills the 32 MiB of recent commits that the embedded store keeps, so that they do not count as growth. */
export async function fillHistory({ config, running }: TestServer): Promise<void> {
  if (config.store.kind !== 'sqlite') return
  const value = new Uint8Array(500)
  const writes = Array.from({ length: 100 }, (_, index) => ({ kind: 'put', key: `x/soak/${String(index).padStart(60, '0')}`, value }) as const)
  for (let count = 0; count < 700; count += 1) await running.engine.store.transact({ guards: [], writes }, AbortSignal.timeout(30_000))
}
