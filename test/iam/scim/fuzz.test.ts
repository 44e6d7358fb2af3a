import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestServer, type TestServer } from '../../support/test-server.ts'
import { describeOnChosenStore } from '../../support/parts/require-part.ts'
import { campaignLength, timeoutUnlessSoaking } from '../../soak/factor.ts'
import { enterpriseUrn, makeDirectory, patchUrn, userUrn, type Directory } from './directory.ts'

/** Names of attributes, and similar ones. */
const name = fc.oneof(
  fc.constantFrom(
    'userName',
    'USERNAME',
    'externalId',
    'active',
    'name',
    'name.givenName',
    'emails',
    'emails.value',
    'emails[type eq "work"].value',
    'id',
    'meta',
    'schemas',
  ),
  fc.constantFrom(
    enterpriseUrn,
    `${enterpriseUrn}:department`,
    `${enterpriseUrn}:manager.value`,
    `${userUrn}:title`,
    '__proto__',
    '__proto__.polluted',
    'constructor.prototype',
    'constructor.prototype.polluted',
    `${enterpriseUrn}:__proto__.polluted`,
    'toString',
    '',
  ),
  fc.string({ unit: 'binary', maxLength: 12 }),
)
const leaf = fc.oneof(
  fc.constantFrom('', 'x', 'True', 'False', 'other', '\ud800', '\u0000', true, false, null, 0, -1.5, 1e21),
  fc.string({ unit: 'binary', maxLength: 12 }),
)
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    leaf,
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(fc.oneof(name, fc.constantFrom('value', 'type', 'primary', 'op')), tie('value'), { maxKeys: 3, noNullPrototype: false }),
  ),
}))
/** Names that a careless merge would write to every object. JSON treats `__proto__` as any other member. */
const polluting = fc.constantFrom('__proto__', 'constructor', 'name', userUrn, enterpriseUrn).map((top): unknown => {
  const inner = top === 'constructor' ? '{"prototype":{"polluted":"x"}}' : '{"__proto__":{"polluted":"x"},"polluted":"x"}'
  return JSON.parse(`{"${top}":${inner}}`)
})
const operation = fc.record(
  { op: fc.oneof(fc.constantFrom('add', 'Replace', 'remove'), leaf), path: fc.oneof(name, leaf), value: fc.oneof({ weight: 4, arbitrary: value }, polluting) },
  { requiredKeys: ['op'], noNullPrototype: false },
)
/** Valid operations, between which the invalid ones are placed. */
const right = fc.oneof(
  fc.record({
    op: fc.constantFrom('add', 'Replace'),
    path: fc.constantFrom('title', 'name.familyName', `${enterpriseUrn}:department`),
    value: fc.constantFrom('x', 'Y'),
  }),
  fc.record({
    op: fc.constantFrom('Add', 'replace'),
    value: fc.record({ active: fc.constantFrom('True', 'False', true), roles: fc.constantFrom([], ['x'], [{ value: 'y', primary: true }]) }),
  }),
  fc.record({ op: fc.constant('remove'), path: fc.constantFrom('title', 'roles', 'active', enterpriseUrn) }),
)
const patch = fc.oneof(
  fc
    .array(fc.oneof({ weight: 3, arbitrary: right }, operation, value), { minLength: 1, maxLength: 4 })
    .map((operations) => ({ schemas: [patchUrn], Operations: operations })),
  fc.array(right, { minLength: 1, maxLength: 4 }).map((operations) => ({ Operations: operations })),
)
const user = fc.oneof(
  value,
  polluting,
  fc.record(
    { userName: fc.constantFrom('one', 'Two', 'bystander 1'), name: value, emails: value, [enterpriseUrn]: value },
    { requiredKeys: ['userName'], noNullPrototype: false },
  ),
  fc.record(
    { userName: fc.constantFrom('one', 'Two'), externalId: fc.string(), title: fc.string({ unit: 'binary' }), active: fc.boolean() },
    { requiredKeys: ['userName'] },
  ),
)
const request = fc.oneof(
  fc.tuple(fc.constant('PATCH'), patch),
  fc.tuple(fc.constantFrom('PATCH', 'PUT', 'POST'), value),
  fc.tuple(fc.constantFrom('PUT', 'POST'), user),
)
const word = fc.oneof(
  name,
  fc.constantFrom(
    'and',
    'or',
    'not',
    'eq',
    'ne',
    'co',
    'sw',
    'ew',
    'gt',
    'le',
    'pr',
    '(',
    ')',
    '[',
    ']',
    '"x"',
    '"',
    '\\',
    '"\\',
    'true',
    'null',
    '7',
    '-',
    'meta.created',
    '"2020-01-01T00:00:00Z"',
    '$ref',
  ),
)
const filter = fc.oneof(
  fc.array(word, { maxLength: 12 }).map((words) => words.join(' ')),
  fc.array(word, { maxLength: 12 }).map((words) => words.join('')),
)

describeOnChosenStore('SCIM with random requests', (store) => {
  let server: TestServer
  let directory: Directory
  /** Users that no request may change. */
  let others: Readonly<Record<string, unknown>>

  const list = (at: Directory): Promise<Readonly<Record<string, unknown>>> => at.expecting(200, 'GET', 'Users?filter=externalId%20sw%20%22bystander%22')

  beforeAll(async () => {
    server = await startTestServer({ store })
    directory = await makeDirectory(server)
    for (const at of [1, 2, 3])
      await directory.add({ userName: `bystander ${at}`, externalId: `bystander ${at}`, emails: [{ value: 'x', type: 'work', primary: true }] })
    others = await list(directory)
  })
  afterAll(() => server.stop())

  /** Expects no server error, and no change of other users. */
  function expectCalm(): void {
    expect(server.logs.filter(({ level }) => level === 'error')).toEqual([])
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined()
    expect(Object.keys(Object.prototype)).toEqual([])
  }

  test(
    'patches, PUT and POST never get a 5xx and change only their user; refused ones change nothing',
    { timeout: timeoutUnlessSoaking(300_000) },
    async () => {
      const id = await directory.add({ userName: 'subject' })
      let taken = 0
      await fc.assert(
        fc.asyncProperty(request, async ([method, body]) => {
          const before = (await directory.ask('GET', `Users/${id}`)).text
          const path = method === 'POST' ? 'Users' : `Users/${id}`
          const reply = await directory.ask(method, path, { text: JSON.stringify(body) })
          expect([reply.status < 500, reply.text]).toEqual([true, reply.text])
          const now = await directory.ask('GET', `Users/${id}`)
          expect(now.status).toBe(200)
          expect(now.body['userName']).toMatch(/\S/)
          if (reply.status >= 400 || method === 'POST') expect(now.text).toBe(before)
          if (reply.status < 400) taken += 1
          if (method === 'POST' && reply.status === 201) expect((await directory.ask('DELETE', `Users/${String(reply.body['id'])}`)).status).toBe(204)
        }),
        { numRuns: campaignLength({ short: 100, full: 150 }) },
      )
      expect(taken).toBeGreaterThan(10)
      expect(await list(directory)).toEqual(others)
      expectCalm()
    },
  )

  test('filters, queries and paths never get a 5xx', { timeout: timeoutUnlessSoaking(300_000) }, async () => {
    let found = 0
    await fc.assert(
      fc.asyncProperty(filter, fc.oneof(name, fc.string()), fc.string({ maxLength: 8 }), async (text, attributes, count) => {
        const query = new URLSearchParams({
          filter: text,
          ...(count.length % 2 === 0 ? { attributes } : { excludedAttributes: attributes }),
          ...(count.length > 6 ? { count } : {}),
        })
        const reply = await directory.ask('GET', `Users?${query}`)
        expect([[200, 400].includes(reply.status), text, reply.text]).toEqual([true, text, reply.text])
        if (reply.status === 200) found += 1
        const path = await directory.ask('GET', `Users/${encodeURIComponent(attributes.toWellFormed())}`)
        expect([200, 400, 404].includes(path.status)).toBe(true)
      }),
      { numRuns: campaignLength({ short: 120, full: 150 }) },
    )
    expect(found).toBeGreaterThan(0)
    expect(await list(directory)).toEqual(others)
    expectCalm()
  })
})
