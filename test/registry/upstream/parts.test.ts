import { spawnSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { crane } from '../../support/parts/crane.ts'
import { registryAccount, startRegistry } from '../../support/parts/registry.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'

describeWithPart('registry', 'the registry and crane of the tests', () => {
  test('crane pushes with a password, and finds the image after the registry was killed', async () => {
    const registry = await startRegistry({ auth: 'basic' })
    const directory = await mkdtemp(join(tmpdir(), 'taproot-parts-'))
    try {
      await writeFile(join(directory, 'hello.txt'), 'hello')
      const host = `127.0.0.1:${registry.port}`
      const env = { DOCKER_CONFIG: directory }
      const image = `${host}/group/image:v1`
      const layer = join(directory, 'layer.tar')
      expect(spawnSync('tar', ['-cf', layer, '-C', directory, 'hello.txt']).status).toBe(0)

      expect(await crane(['append', '-f', layer, '-t', image], { env })).toMatchObject({ code: 1 })
      const login = await crane(['auth', 'login', host, '-u', registryAccount.username, '--password-stdin'], { env, stdin: registryAccount.password })
      expect(login).toMatchObject({ code: 0 })
      expect(await crane(['append', '-f', layer, '-t', image], { env })).toMatchObject({ code: 0 })
      const before = await crane(['digest', image], { env })
      expect(before.stdout).toMatch(/^sha256:/)

      await registry.kill()
      await registry.restart()
      expect(await crane(['digest', image], { env })).toEqual(before)
    } finally {
      await registry.stop()
      await rm(directory, { recursive: true, force: true })
    }
  })
})
