import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { startTestServer } from '../support/test-server.ts'

test('a store written by a newer version is not changed', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'taproot-format-'))
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }))
  const first = await startTestServer({ dataDir })
  const signal = AbortSignal.timeout(60_000)
  const written = await first.running.engine.store.get('meta/format', signal)
  expect(Buffer.from(written?.value ?? []).toString()).toBe('1')
  await first.running.engine.store.transact({ guards: [], writes: [{ kind: 'put', key: 'meta/format', value: Buffer.from('2') }] }, signal)
  await first.stop()
  await expect(startTestServer({ dataDir })).rejects.toThrow('the store has format 2, this version supports 1: start a newer version')
})
