import { expect, test } from 'vitest'
import { digestOf } from '../../../../src/base/digest.ts'
import { ChangeSet } from '../../../../src/engine/change-set.ts'
import { appendHistory, readHead } from '../../../../src/registry/tags/tag-history.ts'
import { freshName } from '../../../support/test-server.ts'
import { OciClient } from '../../../registry/oci/oci-client.ts'
import { bearer, publicName, RegistryWorld, type Answer, type Tenant } from '../../../registry/tokens/registry-world.ts'
import { specSuite, type Spec } from '../spec-suite.ts'

interface Shown {
  readonly updateTimestamp: string
  readonly digest: string
}

const worlds = new WeakMap<object, RegistryWorld>()

function worldOf(spec: Spec): RegistryWorld {
  const world = worlds.get(spec.server) ?? new RegistryWorld(spec.server)
  worlds.set(spec.server, world)
  return world
}

/** Moves the tag so many times, as commits do; returns the times. */
async function move(spec: Spec, tag: { repo: string; name: string; count: number }): Promise<number[]> {
  const { store, services } = spec.server.running.engine
  const { repo, name, count } = tag
  const times: number[] = []
  while (times.length < count) {
    const changes = new ChangeSet()
    const after = await readHead(store, { repo, name }, AbortSignal.timeout(60_000))
    times.push(
      appendHistory(changes, { repo, name }, { digest: digestOf(Buffer.from(String(times.length))), nowMs: services.clock.now(), notBeforeMs: 0, after }),
    )
    await store.transact(changes, AbortSignal.timeout(60_000))
  }
  return times
}

const historyOf = ({ body }: Answer): readonly Shown[] => (JSON.parse(body) as { history: Shown[] }).history // a cast of JSON

specSuite(
  'the registry host',
  (spec) => {
    const scopeOf = ({ path }: Tenant): string => `repository:${path}:pull`
    const history = (path: string, options: { tag?: string; query?: string; token?: string } = {}) =>
      worldOf(spec).ask({
        path: `/v2/${path}/_service/history/${options.tag ?? 'latest'}${options.query ?? ''}`,
        authorization: options.token === undefined ? undefined : bearer(options.token),
      })
    const withHistory = async (count = 3): Promise<{ tenant: Tenant; token: string; times: number[] }> => {
      const tenant = await worldOf(spec).tenant()
      const times = await move(spec, { repo: tenant.repo, name: 'latest', count })
      return { tenant, token: await worldOf(spec).tokenFor(scopeOf(tenant), tenant.authorization), times }
    }

    // docs/spec/registry.md#registry-token-endpoint
    test('GET /token with scope=repository:<organization>/<image>:pull returns a JSON object with a token', async () => {
      const tenant = await worldOf(spec).tenant()
      const answer = await worldOf(spec).requestToken([scopeOf(tenant)], tenant.authorization)
      expect(answer).toMatchObject({ status: 200, headers: { 'content-type': expect.stringMatching(/^application\/json/) as unknown } })
      expect(JSON.parse(answer.body)).toMatchObject({ token: expect.stringMatching(/^[\w-]+\.[\w-]+\.[\w-]+$/) as unknown })
    })

    // docs/spec/registry.md#history-endpoint
    test('GET /v2/<organization>/<image>/_service/history/<tag> returns { history: [{ updateTimestamp, digest }] }, oldest first', async () => {
      const { tenant, token, times } = await withHistory()
      const answer = await history(tenant.path, { token })
      expect(answer.status).toBe(200)
      expect(Object.keys(JSON.parse(answer.body) as object)).toEqual(['history'])
      expect(historyOf(answer).map((record) => Object.keys(record))).toEqual(times.map(() => ['updateTimestamp', 'digest']))
      expect(historyOf(answer).map(({ updateTimestamp }) => updateTimestamp)).toEqual(times.map((ms) => new Date(ms).toISOString()))
      for (const { digest } of historyOf(answer)) expect(digest).toMatch(/^sha256:[0-9a-f]{64}$/)
    })

    // docs/spec/registry.md#tag-history
    test('start and end limit the history to a time window', async () => {
      const { tenant, token, times } = await withHistory()
      const [, middle = 0] = times
      const bounded = async (query: string): Promise<number[]> =>
        historyOf(await history(tenant.path, { token, query })).map(({ updateTimestamp }) => Date.parse(updateTimestamp))
      expect(await bounded(`?start=${new Date(middle).toISOString()}`)).toEqual(times.slice(1))
      expect(await bounded(`?end=${new Date(middle).toISOString()}`)).toEqual(times.slice(0, 1))
    })

    // docs/spec/registry.md#history-endpoint
    test('a digest of the history pins a build: <registry host>/<organization>/<image>@<digest>', async () => {
      const tenant = await worldOf(spec).tenant()
      const client = new OciClient(spec.server.config.registry.port, tenant.authorization.slice('Bearer '.length))
      const first = await client.pushImage(tenant.path, 'latest')
      await client.pushImage(tenant.path, 'latest')
      const token = await worldOf(spec).tokenFor(scopeOf(tenant), tenant.authorization)
      const [oldest] = historyOf(await history(tenant.path, { token }))
      expect(oldest?.digest).toBe(first.digest)
      expect((await client.send('GET', `/v2/${tenant.path}/manifests/${oldest?.digest ?? ''}`)).body).toEqual(first.bytes)
      client.close()
    })

    // docs/spec/registry.md#history-endpoint
    test('a request returns at most 1,000 records, the oldest; start reaches later ones', async () => {
      const { tenant, token, times } = await withHistory(1_001)
      const page = historyOf(await history(tenant.path, { token }))
      expect(page.map(({ updateTimestamp }) => Date.parse(updateTimestamp))).toEqual(times.slice(0, 1_000))
      const rest = historyOf(await history(tenant.path, { token, query: `?start=${new Date((times[999] ?? 0) + 1).toISOString()}` }))
      expect(rest.map(({ updateTimestamp }) => Date.parse(updateTimestamp))).toEqual(times.slice(1_000))
    })

    // docs/spec/iam.md#reach
    test('an identity of the root group reaches the registry, one of a subgroup does not', async () => {
      const { tenant } = await withHistory()
      const sub = await worldOf(spec).group(tenant.group, freshName('sub'))
      const confined = await worldOf(spec).member(sub, { role: 'owner' })
      await worldOf(spec).bindAnyway(tenant.group, confined.uid, 'owner')
      const own = await worldOf(spec).repo(sub, 'own')
      expect(own).toMatch(/\//)
      const { token } = await worldOf(spec).requestToken([scopeOf(tenant)], confined.authorization)
      expect(worldOf(spec).claimsOf(token).access).toEqual([])
      expect((await history(tenant.path, { token })).status).toBe(403)
      expect((await history(tenant.path, { token: confined.authorization.slice('Bearer '.length) })).status).toBe(403)
      expect((await worldOf(spec).list(tenant.path, tenant.authorization)).status).toBe(200)
    })

    // docs/spec/registry.md#registry-token-endpoint
    test('a registry token is valid only for the image in its scope', async () => {
      const { tenant, token } = await withHistory()
      await worldOf(spec).repo(tenant.group, 'other')
      expect((await history(tenant.path, { token })).status).toBe(200)
      expect(await history(`${tenant.name}/other`, { token })).toMatchObject({ status: 403, codes: ['DENIED'] })
    })

    // docs/spec/registry.md#registry-token-endpoint
    test('the token of a public image is anonymous, that of a private image is not', async () => {
      const [free, tenant] = [await worldOf(spec).publicTenant(), await worldOf(spec).tenant()]
      await move(spec, { repo: free.repo, name: 'latest', count: 1 })
      const token = await worldOf(spec).tokenFor(scopeOf(free))
      expect(historyOf(await history(free.path, { token }))).toHaveLength(1)
      expect(await worldOf(spec).requestToken([scopeOf(tenant)])).toMatchObject({ status: 401, codes: ['UNAUTHORIZED'] })
    })

    // docs/spec/registry.md#registry-credentials
    test('a token for another audience than the registry host is refused with 403, at /token and at the history', async () => {
      const { tenant } = await withHistory()
      const token = await spec.server.tokenFor(tenant.owner)
      expect(await worldOf(spec).requestToken([scopeOf(tenant)], bearer(token))).toMatchObject({ status: 403 })
      expect(await history(tenant.path, { token })).toMatchObject({ status: 403 })
    })

    // docs/spec/registry.md#tag-history
    test('inverted and unparsable windows are 400, unknown images and tags 404', async () => {
      const { tenant, token } = await withHistory()
      for (const query of ['?start=yesterday', '?end=2026-13-01T00:00:00Z', '?start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z'])
        expect((await history(tenant.path, { token, query })).status, query).toBe(400)
      expect((await history(tenant.path, { token, tag: 'never' })).status).toBe(404)
      expect((await history(tenant.path, { token, query: '?start=2100-01-01T00:00:00Z' })).body).toBe('{"history":[]}')
    })
  },
  { env: { TAPROOT_REGISTRY_PUBLIC_ORGANIZATION: publicName }, transports: ['rest'] },
)
