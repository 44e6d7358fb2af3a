import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { objectKinds } from '../../../src/kubernetes/object-kinds.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { fullSpecs, fullStatus } from '../crd/full-objects.ts'
import { allowEverything, applyMirrorPolicy, objectOf, pathOf, startObjectApi, type Answer, type ObjectApi } from '../object-api.ts'

const controller = 'system:serviceaccount:taproot:taproot-controller'
const mergePatch = 'application/merge-patch+json'
const labels = { 'taproot.dev/origin': 'api' }

/** Callers with all rights; undefined is an administrator of the cluster (system:masters). */
const strangers = [
  undefined,
  'ann',
  'system:serviceaccount:taproot:default',
  'system:serviceaccount:other:taproot-controller',
  'system:serviceaccount:taproot:taproot-controller2',
]

/** Changes of a mirror by a merge patch, of the object or its status. */
const touches: readonly { readonly what: string; readonly patch: unknown; readonly status?: true }[] = [
  { what: 'change the spec', patch: { spec: { description: 'mine' } } },
  { what: 'take the label', patch: { metadata: { labels: { 'taproot.dev/origin': null } } } },
  { what: 'change the label', patch: { metadata: { labels: { 'taproot.dev/origin': 'me' } } } },
  { what: 'add a label', patch: { metadata: { labels: { mine: 'yes' } } } },
  { what: 'annotate it', patch: { metadata: { annotations: { 'taproot.dev/uid': 'mine' } } } },
  { what: 'hold it by a finalizer', patch: { metadata: { finalizers: ['example.com/mine'] } } },
  { what: 'give it an owner', patch: { metadata: { ownerReferences: [{ apiVersion: 'v1', kind: 'ConfigMap', name: 'x', uid: 'x' }] } } },
  { what: 'write its status', patch: { status: fullStatus }, status: true },
]

/** Changes that are allowed for an object that is not a mirror. */
const harmless = touches.filter(({ what }) => what !== 'change the label')

describeWithPart('kube-apiserver', 'the admission policy for mirrors', () => {
  let api: ObjectApi

  beforeAll(async () => {
    api = await startObjectApi({})
    await allowEverything(api, controller, ...strangers.filter((user) => user !== undefined))
    await applyMirrorPolicy(api)
  })

  afterAll(() => api?.stop())

  let made = 0
  const create = (kind: string, metadata: unknown, as?: string): Promise<Answer & { name: string }> => {
    const name = `object-${made++}`
    const call = { path: pathOf(kind), body: objectOf(kind, name, { metadata, spec: fullSpecs[kind]?.[0] }), ...(as !== undefined && { as }) }
    return api.send('POST', call).then((answer) => ({ ...answer, name }))
  }
  const patch = (
    name: string,
    body: unknown,
    { as, status = false, dryRun = false }: { as?: string | undefined; status?: boolean; dryRun?: boolean },
  ): Promise<Answer> =>
    api.send('PATCH', {
      path: `${pathOf('PlatformGroup', name)}${status ? '/status' : ''}${dryRun ? '?dryRun=All' : ''}`,
      body,
      contentType: mergePatch,
      ...(as !== undefined && { as }),
    })
  const expectReadOnly = ({ status, body }: Answer): void => {
    expect(status).toBe(403)
    expect(body['message']).toContain('read-only')
  }

  describe.each(Object.values(objectKinds).map(({ type }) => type.kind))('%s', (kind) => {
    test('the admission policy for mirrors lets the controller create it', async () => {
      expect((await create(kind, { labels }, controller)).status).toBe(201)
    })

    test.each(strangers)('the admission policy for mirrors lets no other account create it: %s', async (as) => {
      expectReadOnly(await create(kind, { labels }, as))
      expect((await create(kind, { labels: { 'taproot.dev/origin': 'elsewhere' } }, as)).status).toBe(201)
    })
  })

  test.each(touches)('the admission policy for mirrors lets the controller change a mirror: $what', async ({ patch: body, status = false }) => {
    const { name } = await create('PlatformGroup', { labels }, controller)
    expect((await patch(name, body, { as: controller, status, dryRun: true })).status).toBe(200)
  })

  test.each(touches.flatMap((touch) => strangers.map((as) => ({ ...touch, as }))))(
    'the admission policy for mirrors does not let $as change a mirror: $what',
    async ({ patch: body, status = false, as }) => {
      const { name } = await create('PlatformGroup', { labels }, controller)
      expectReadOnly(await patch(name, body, { as, status }))
    },
  )

  test.each(strangers)('the admission policy for mirrors does not let %s turn its own object into a mirror', async (as) => {
    const { name } = await create('PlatformGroup', {}, as)
    expectReadOnly(await patch(name, { metadata: { labels } }, { as }))
    expectReadOnly(await patch(name, { metadata: { labels }, spec: { description: 'both' } }, { as }))
  })

  test.each(harmless)(
    'the admission policy for mirrors lets every caller change an object that is not a mirror: $what',
    async ({ patch: body, status = false }) => {
      const { name } = await create('PlatformGroup', { labels: { other: 'label' } }, 'ann')
      expect((await patch(name, body, { as: 'ann', status, dryRun: true })).status).toBe(200)
    },
  )

  test('the admission policy for mirrors refuses server-side apply and full replacement like a patch', async () => {
    const { name, body } = await create('PlatformGroup', { labels }, controller)
    const path = pathOf('PlatformGroup', name)
    const applied = objectOf('PlatformGroup', name, { spec: { description: 'mine' } })
    expectReadOnly(
      await api.send('PATCH', { path: `${path}?fieldManager=ann&force=true`, body: applied, contentType: 'application/apply-patch+yaml', as: 'ann' }),
    )
    expectReadOnly(await api.send('PUT', { path, body: { ...body, spec: { ...fullSpecs['PlatformGroup']?.[0], description: 'mine' } }, as: 'ann' }))
  })

  test('the admission policy for mirrors accepts a write that changes nothing', async () => {
    const { name } = await create('PlatformGroup', { labels }, controller)
    // The first write keeps the default of the status, which the answer to the create lacks.
    const { status, body } = await patch(name, {}, { as: 'ann' })
    expect(status).toBe(200)
    expect((await api.send('PUT', { path: pathOf('PlatformGroup', name), body, as: 'ann' })).status).toBe(200)
  })

  test.each(strangers)('the admission policy for mirrors lets %s delete one', async (as) => {
    const { name } = await create('PlatformGroup', { labels }, controller)
    expect((await api.send('DELETE', { path: pathOf('PlatformGroup', name), ...(as !== undefined && { as }) })).status).toBe(200)
    expect((await api.send('GET', { path: pathOf('PlatformGroup', name) })).status).toBe(404)
  })

  test('the admission policy for mirrors lets all of them be deleted at once', async () => {
    await create('PlatformGroup', { labels }, controller)
    expect((await api.send('DELETE', { path: pathOf('PlatformGroup'), as: 'ann' })).status).toBe(200)
  })

  test('the admission policy for mirrors lets a mirror during its deletion lose its finalizers, and nothing else change', async () => {
    const { name } = await create('PlatformGroup', { labels }, controller)
    const foreground = { apiVersion: 'v1', kind: 'DeleteOptions', propagationPolicy: 'Foreground' }
    await api.send('DELETE', { path: pathOf('PlatformGroup', name), body: foreground, as: 'ann' })
    const collector = 'ann'
    for (const { patch: body, status = false } of touches.filter(({ what }) => /spec|label|status/.test(what))) {
      expectReadOnly(await patch(name, body, { as: collector, status }))
    }
    expect((await patch(name, { metadata: { finalizers: null } }, { as: collector })).status).toBe(200)
    expect((await api.send('GET', { path: pathOf('PlatformGroup', name) })).status).toBe(404)
  })
})
