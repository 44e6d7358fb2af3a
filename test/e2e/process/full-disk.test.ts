import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ok } from '../../support/test-server.ts'
import { smallFileSystem } from '../../support/parts/small-file-system.ts'
import { makeDevHome, startDev } from './harness/dev-home.ts'
import { until } from './harness/ops.ts'
import { isReady } from './harness/taproot-process.ts'

const full = { code: 8, httpStatus: 429, details: { ErrorInfo: { reason: 'STORE_FULL' }, RetryInfo: { retryDelay: '30.000s' } } }

test('taproot dev on a full disk refuses writes with STORE_FULL, serves reads, stays ready, and accepts writes once there is room', async () => {
  const disk = await smallFileSystem(16 * 1024 * 1024)
  const home = await makeDevHome({ TAPROOT_DATA_DIR: join(disk.directory, 'data') })
  const running = await startDev(home)
  const token = (await readFile(join(disk.directory, 'data', 'token'), 'utf8')).trim()
  const { groups } = ok(await home.rest.call('ListGroups', {}, { token })) as { groups: { uid: string }[] } // a cast of the list's answer
  const group = groups[0]?.uid ?? ''
  const makeSubgroup = (name: string, description = ''): ReturnType<typeof home.rest.call> =>
    home.rest.call('CreateGroup', { parent: group, group: { name, description } }, { token })
  const child = String(ok(await makeSubgroup('child'))['uid'])

  await disk.fill()
  // The store's log may still use space that it already allocated.
  let acknowledged = 1
  await until(async () => {
    const reply = await makeSubgroup(`filler ${acknowledged}`, 'x'.repeat(500))
    if (reply.code === 0) acknowledged += 1
    else expect(reply).toMatchObject(full)
    return reply.code !== 0
  }, 120_000)
  for (let round = 0; round < 20; round += 1) {
    expect(await makeSubgroup('refused', 'y'.repeat(500))).toMatchObject(full)
    expect(await home.rest.call('UpdateGroup', { group: { uid: child, description: 'z'.repeat(500) } }, { token })).toMatchObject(full)
    expect(ok(await home.rest.call('ListGroups', { uidp: { descendantsOf: group } }, { token }))['totalCount']).toBe(String(acknowledged))
    expect(await isReady(home.opsPort)).toBe(true)
  }
  expect(running.running).toBe(true)

  await disk.makeRoom()
  ok(await makeSubgroup('refused'))
  ok(await home.rest.call('DeleteGroup', { uid: child }, { token }))
  expect(ok(await home.rest.call('ListGroups', { uidp: { descendantsOf: group } }, { token }))['totalCount']).toBe(String(acknowledged))

  // The log file contains complete lines from the time without space.
  const log = async (): Promise<string[]> => (await readFile(join(disk.directory, 'data', 'taproot.log'), 'utf8')).trimEnd().split('\n')
  await until(async () => (await log()).filter((line) => /^\{.*"STORE_FULL".*\}$/.test(line)).length >= 40)

  // Stopping on a full disk takes no longer than usual, and acknowledged changes exist afterwards.
  await disk.fill()
  expect(await makeSubgroup('refused too', 'y'.repeat(500))).toMatchObject({ code: expect.any(Number) as unknown })
  const startedAt = performance.now()
  expect((await running.end('SIGTERM')).code).toBe(0)
  expect(performance.now() - startedAt).toBeLessThan(5_000)
  await disk.makeRoom()
  await startDev(home)
  const after = (await readFile(join(disk.directory, 'data', 'token'), 'utf8')).trim()
  const { totalCount } = ok(await home.rest.call('ListGroups', { uidp: { descendantsOf: group } }, { token: after }))
  expect([acknowledged, acknowledged + 1].map(String)).toContain(totalCount)
  ok(await home.rest.call('CreateGroup', { parent: group, group: { name: 'again' } }, { token: after }))
})
