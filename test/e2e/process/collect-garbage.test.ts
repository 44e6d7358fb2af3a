import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { ok } from '../../support/test-server.ts'
import { crane } from '../../support/parts/crane.ts'
import { makeDevHome, readToken, startDev, type DevHome } from './harness/dev-home.ts'
import { freshDirectory, runProcess, type Ending } from './harness/taproot-process.ts'

async function collect(home: DevHome, ...options: string[]): Promise<Ending> {
  return runProcess({ args: ['collect-garbage', ...options], env: home.env, cwd: home.cwd })
}

async function filesOf(home: DevHome): Promise<string[]> {
  const entries = await readdir(join(home.cwd, '.taproot', 'registry', 'repos'), { recursive: true, withFileTypes: true })
  return entries.filter((entry) => entry.isFile()).map(({ name }) => name)
}

/** Pushes a one-layer image to `demo/app` as the demo owner. */
async function push(home: DevHome, tag: string, content: string): Promise<void> {
  const host = `localhost:${home.env['TAPROOT_REGISTRY_PORT']}`
  const token = (await readFile(join(home.cwd, '.taproot', 'registry-token'), 'utf8')).trim()
  await writeFile(join(home.cwd, 'config.json'), JSON.stringify({ auths: { [host]: { auth: Buffer.from(`_token:${token}`).toString('base64') } } }))
  await writeFile(join(home.cwd, 'layer.tar'), Buffer.alloc(10_240, content))
  const options = { env: { DOCKER_CONFIG: home.cwd }, cwd: home.cwd }
  const pushed = await crane(['append', '--oci-empty-base', '-f', 'layer.tar', '-t', `${host}/demo/app:${tag}`], options)
  expect(pushed, pushed.stderr).toMatchObject({ code: 0 })
}

describe('taproot collect-garbage', () => {
  test('taproot collect-garbage refuses while the server runs; afterwards removes unneeded content, and keeps what a tag needs', async () => {
    const home = await makeDevHome()
    const dev = await startDev(home)
    await push(home, 'kept', 'a')
    await push(home, 'gone', 'b')
    const running = await collect(home)
    expect(running.code).toBe(1)
    expect(running.stderr).toContain('another process uses the file')
    const token = await readToken(home)
    const { tags } = ok(await home.rest.call('ListTags', { name: 'gone' }, { token })) as unknown as { tags: { uid: string; digest: string }[] }
    const host = `http://localhost:${home.env['TAPROOT_REGISTRY_PORT']}`
    const registryToken = (await readFile(join(home.cwd, '.taproot', 'registry-token'), 'utf8')).trim()
    const headers = { authorization: `Bearer ${registryToken}` }
    expect((await fetch(`${host}/v2/demo/app/manifests/${tags[0]?.digest}`, { method: 'DELETE', headers })).status).toBe(202)
    await dev.end('SIGTERM')
    const before = await filesOf(home)
    const counted = await collect(home, '--dry-run', '--grace-hours', '0')
    expect(counted).toMatchObject({ code: 0, stderr: '' })
    // Both images have the empty config.
    expect(counted.stdout).toMatch(
      /^1 repos: would remove 1 manifests and [12] blobs \(\d+\.\d MiB\)\nbytes without a record: would remove 0 manifests and 0 blobs\n$/,
    )
    expect(await filesOf(home)).toEqual(before)
    const removed = await collect(home, '--grace-hours', '0')
    expect(removed.stdout).toContain('removed 1 manifests')
    expect((await filesOf(home)).length).toBeLessThan(before.length)
    expect((await collect(home, '--grace-hours', '0')).stdout).toContain('removed 0 manifests and 0 blobs')
    const again = await startDev(home)
    const pulled = await fetch(`${host}/v2/demo/app/manifests/kept`, { headers })
    expect(pulled.status).toBe(200)
    const { layers } = (await pulled.json()) as { layers: { digest: string }[] }
    for (const { digest } of layers) expect((await fetch(`${host}/v2/demo/app/blobs/${digest}`, { method: 'HEAD', headers })).status).toBe(200)
    await again.end('SIGTERM')
  })

  test.each([
    ['an invalid number of hours', ['--grace-hours', 'soon'], 'Use a number of hours', 2],
    ['a store that does not exist', [], 'there is no store', 1],
  ])('taproot collect-garbage reports %s and creates nothing', async (_title, options, message, exitCode) => {
    const cwd = await freshDirectory()
    const { code, stderr } = await runProcess({ args: ['collect-garbage', ...options], env: {}, cwd })
    expect(code).toBe(exitCode)
    expect(stderr).toContain(message)
    expect(await readdir(cwd)).toEqual([])
  })
})
