import { expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { freshName } from '../../support/test-server.ts'
import { registrySuite } from './registry-suite.ts'

registrySuite('audit events of the registry host', (suite) => {
  const eventsFrom = (from: number): Readonly<Record<string, unknown>>[] =>
    suite.world.server.logs
      .slice(from)
      .filter(({ message }) => message === 'audit')
      .map(({ fields }) => fields)

  test('a finished upload, a manifest, a delete and a token are one audit event each; reads, chunks and started uploads are none', async () => {
    const { world, mine } = suite
    const { authorization } = mine
    const from = world.server.logs.length
    const bytes = Buffer.from(freshName('blob'))
    const digest = digestOf(bytes)
    const { headers } = await world.upload(mine.path, authorization)
    const path = `${String(headers.location)}&digest=${digest}`
    expect(await world.ask({ method: 'PUT', path, authorization, body: bytes })).toMatchObject({ status: 201 })
    const manifest = `/v2/${mine.path}/manifests/audited`
    expect(await world.ask({ method: 'PUT', path: manifest, authorization, body: Buffer.from('{}') })).toMatchObject({ status: 400 })
    expect(await world.list(mine.path, authorization)).toMatchObject({ status: 200 })
    expect(await world.ask({ method: 'DELETE', path: `/v2/${mine.path}/blobs/${digest}`, authorization })).toMatchObject({ status: 202 })
    await world.requestToken([`repository:${mine.path}:pull`], authorization)
    const events = eventsFrom(from)
    expect(events.map(({ method, outcome }) => [method, outcome])).toEqual([
      ['registry/putBlob', 'done'],
      ['registry/putManifest', 'failed'],
      ['registry/deleteBlob', 'done'],
      ['registry/token', 'done'],
    ])
    expect(events[0]).toMatchObject({ kind: 'Repo', name: mine.path, root: mine.group, capability: 'manifest.create,tag.create' })
    expect(events[1]).toMatchObject({ name: `${mine.path}:audited`, code: 3 })
    expect(events[2]).toMatchObject({ name: `${mine.path}@${digest}` })
    expect(JSON.stringify(events)).not.toContain(authorization.slice(-24))
  })
})
