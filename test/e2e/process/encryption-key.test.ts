import { randomBytes } from 'node:crypto'
import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { makeOrganisation, startTestServer, type TestServer } from '../../support/test-server.ts'
import { etcdSettings, shareEtcd } from '../../support/parts/etcd.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { freshDirectory, runProcess, type Ending } from './harness/taproot-process.ts'

describeWithPart('etcd', 'taproot encryption-key', () => {
  test('taproot encryption-key replaces the key while servers run: servers start with both keys, then with the new one, and read all encrypted data', async () => {
    const cwd = await freshDirectory()
    const etcd = await shareEtcd()
    const envOf = (key: string): Record<string, string> => ({ TAPROOT_ENCRYPTION_KEY_FILE: join(cwd, key) })
    for (const key of ['old', 'new']) await writeFile(join(cwd, key), randomBytes(32).toString('base64'))
    const start = async (key: string): Promise<TestServer> => {
      const server = await startTestServer({ store: 'etcd', etcd, env: envOf(key) })
      onTestFinished(() => server.stop())
      return server
    }
    const run = (key: string, ...args: string[]): Promise<Ending> => {
      const env = { ...etcdSettings(etcd), ...envOf(key) }
      return runProcess({ args: ['encryption-key', ...args], env, cwd })
    }
    const running = await start('old')
    const { kid } = running.running.engine.signingKeys.current()
    expect(await run('new', 'retire', '--key-file', 'old')).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('encryption.keyFile') as unknown,
    })
    expect(await run('old', 'add', '--key-file', 'new')).toEqual({ code: 0, stdout: 'added: 2 keys open the store\n', stderr: '' })
    const both = [await start('old'), await start('new')]
    expect(await run('old', 'retire', '--key-file', 'old')).toMatchObject({ code: 1, stderr: expect.stringContaining('cannot be retired') as unknown })
    expect(await run('new', 'retire', '--key-file', 'old')).toEqual({ code: 0, stdout: 'retired: 1 key opens the store\n', stderr: '' })
    await expect(start('old')).rejects.toMatchObject({ name: 'SealingError', reason: 'wrong_key' })
    for (const server of [...both, await start('new')]) expect(server.running.engine.signingKeys.current().kid).toBe(kid)
    await makeOrganisation(running)
  })

  test.for([
    ['a key file that does not exist', ['add', '--key-file', 'absent'], 2, 'absent'],
    ['an invalid key', ['add', '--key-file', 'short'], 2, '--key-file short'],
    ['no store', ['retire', '--key-file', 'key'], 1, 'there is no store'],
    ['no key file', ['add'], 2, '--key-file'],
    ['a store without a key', ['add', '--key-file', 'key'], 1, 'there is no key at', { TAPROOT_STORE_SQLITE_PATH: 'key' }],
  ] as const)('taproot encryption-key fails with one line on %s', async ([, args, code, named, env = {}]) => {
    const cwd = await freshDirectory()
    await writeFile(join(cwd, 'short'), 'too short')
    await writeFile(join(cwd, 'key'), randomBytes(32))
    const ending = await runProcess({ args: ['encryption-key', ...args], env, cwd })
    expect(ending).toMatchObject({ code, stdout: '', stderr: expect.stringContaining(named) as unknown })
    expect(ending.stderr.trimEnd().split('\n')).toHaveLength(1)
    expect((await readdir(cwd)).sort()).toEqual(['key', 'short'])
  })
})
