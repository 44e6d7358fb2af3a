import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { constraintCases } from './constraint-cases.ts'
import { definitionFiles, definitions, schemaOf } from './definitions.ts'
import { fullSpecs, fullStatus } from './full-objects.ts'
import { objectOf, pathOf, startObjectApi, type Answer, type ObjectApi } from '../object-api.ts'
import { ruleCases, ruleNames, type RuleInput } from './rule-cases.ts'

const kinds = [...definitions.keys()]
const dryRun = 'dryRun=All&fieldValidation=Strict'

describe('crds/', () => {
  test.each([...definitionFiles])('%s is below 200 KiB, as a file and as the annotation of kubectl apply', (name, text) => {
    const definition = [...definitions.values()].find(({ spec }) => `${spec.names.plural}.yaml` === name)
    expect(Buffer.byteLength(text)).toBeLessThan(200 * 1024)
    expect(Buffer.byteLength(JSON.stringify(definition))).toBeLessThan(200 * 1024)
  })

  test.each([
    ['PlatformGroup', ['verified', 'kind', 'status', 'uid', 'etag', 'managedBy', 'createTime', 'resourceLimits']],
    ['PlatformIdentity', ['servicePrincipal', 'email', 'lastSeenTime']],
    ['PlatformRoleBinding', ['identityUid', 'roleUid', 'identity', 'role', 'group']],
    ['PlatformRepo', ['uid', 'updateTime']],
    ['PlatformSubscription', ['state', 'stateReason', 'lastDeliveryTime', 'lastError', 'pendingCount', 'authorizedBy', 'secret']],
  ])('%s has no field that only the platform or its operators write', (kind, fields) => {
    const { properties = {} } = schemaOf(kind).properties?.['spec'] ?? {}
    expect(Object.keys(properties).filter((name) => fields.includes(name))).toEqual([])
  })

  test('every validation rule has accepted and refused cases', () => {
    const names = ruleCases.map(({ kind, at, rule }) => `${kind} ${at}: ${rule}`)
    expect([...new Set(names)].sort()).toEqual(kinds.flatMap(ruleNames).sort())
    expect(ruleCases.filter(({ accepted, refused }) => accepted.length === 0 || refused.length === 0)).toEqual([])
  })
})

describeWithPart('kube-apiserver', 'an API server with crds/', () => {
  let api: ObjectApi

  beforeAll(async () => {
    api = await startObjectApi()
  })

  afterAll(() => api?.stop())

  let made = 0
  const freshName = (): string => `object-${made++}`
  const create = (kind: string, parts: Readonly<Record<string, unknown>>, name = freshName()): Promise<Answer> =>
    api.send('POST', { path: `${pathOf(kind)}?${dryRun}`, body: objectOf(kind, name, parts) })
  const createAndKeep = async (kind: string, spec: unknown): Promise<{ name: string; metadata: unknown }> => {
    const name = freshName()
    const { status, body, causes } = await api.send('POST', { path: pathOf(kind), body: objectOf(kind, name, { spec }) })
    expect({ status, causes }).toEqual({ status: 201, causes: [] })
    return { name, metadata: body['metadata'] }
  }

  describe.each(kinds)('%s', (kind) => {
    test.each(fullSpecs[kind] ?? [])('an API server with crds/ accepts a full spec (%#)', async (spec) => {
      const { status, causes, body } = await create(kind, { spec })
      expect({ status, causes }).toEqual({ status: 201, causes: [] })
      expect(body['spec']).toMatchObject(spec)
    })

    test('an API server with crds/ requires a spec, and refuses unknown fields', async () => {
      expectRefusal(await create(kind, {}), 'spec', /Required value/)
      const [spec] = fullSpecs[kind] ?? []
      const stranger = await create(kind, { spec: { ...spec, nonsense: 1 } })
      expect(stranger.status).toBe(400)
      expect(stranger.causes.join()).toContain('unknown field "spec.nonsense"')
    })

    test.each(constraintCases(kind, 'spec').map((row) => [row.title, row] as const))('%s', async (_, { accepted, refused, field, complaint }) => {
      for (const parts of accepted) expect((await create(kind, { spec: parts['spec'] })).causes).toEqual([])
      for (const parts of refused) expectRefusal(await create(kind, { spec: parts['spec'] }), field, complaint)
    })
  })

  test.each(constraintCases('PlatformGroup', 'status').map((row) => [row.title, row] as const))('%s', async (_, { accepted, refused, field, complaint }) => {
    const { name, metadata } = await createAndKeep('PlatformGroup', {})
    const put = (status: unknown): Promise<Answer> =>
      api.send('PUT', {
        path: `${pathOf('PlatformGroup', name)}/status?${dryRun}`,
        body: { ...objectOf('PlatformGroup', name, { spec: {}, status }), metadata },
      })
    for (const parts of accepted) expect((await put(parts['status'])).causes).toEqual([])
    for (const parts of refused) expectRefusal(await put(parts['status']), field, complaint)
  })

  test('an API server with crds/ refuses two conditions of one type', async () => {
    const { name, metadata } = await createAndKeep('PlatformGroup', {})
    const [condition] = fullStatus.conditions
    const body = { ...objectOf('PlatformGroup', name, { spec: {}, status: { conditions: [condition, condition] } }), metadata }
    const answer = await api.send('PUT', { path: `${pathOf('PlatformGroup', name)}/status?${dryRun}`, body })
    expectRefusal(answer, 'status.conditions[1]', /Duplicate value/)
  })

  test.each(ruleCases.map((row) => [`${row.kind} ${row.at}: ${row.rule}`, row] as const))('%s', async (_, { kind, at, rule, accepted, refused }) => {
    const sent = async ({ name, before, spec }: RuleInput): Promise<Answer> => {
      if (before === undefined) return create(kind, { spec }, name)
      const old = await createAndKeep(kind, before)
      const body = { ...objectOf(kind, old.name, { spec }), metadata: old.metadata }
      return api.send('PUT', { path: `${pathOf(kind, old.name)}?${dryRun}`, body })
    }
    for (const input of accepted) expect((await sent(input)).causes).toEqual([])
    const field = at.replaceAll('[]', '[0]')
    for (const input of refused) {
      const answer = await sent(input)
      expect(answer.status).toBe(422)
      // The message of the rule, or the name of a rule that itself fails.
      expect(answer.causes.filter((cause) => cause.startsWith(`${field}: `) || field === '').join('\n')).toContain(rule)
    }
  })

  test.each([
    ['PlatformGroup', { deletionPolicy: 'Delete', adoptionPolicy: 'ByUid' }],
    ['PlatformNamespaceGrant', { allowAdoption: false, onNamespaceDelete: 'Orphan' }],
  ])('%s has defaults', async (kind, defaults) => {
    const spec = { PlatformGroup: {}, PlatformNamespaceGrant: { namespaceSelector: {}, groupUid: '/', allowedKinds: ['PlatformGroup'] } }[kind]
    expect((await create(kind, { spec })).body['spec']).toEqual({ ...spec, ...defaults })
  })

  test('an API server with crds/ keeps unset fields unset, not empty', async () => {
    const { body } = await create('PlatformRepo', { spec: { parentRef: { name: 'web' } } })
    expect(body['spec']).toEqual({ parentRef: { name: 'web' }, deletionPolicy: 'Delete', adoptionPolicy: 'ByUid' })
  })
})

function expectRefusal({ status, causes }: Answer, field: string, complaint: RegExp): void {
  expect(status).toBe(422)
  expect(causes.filter((cause) => cause.startsWith(field)).join('\n')).toMatch(complaint)
}
