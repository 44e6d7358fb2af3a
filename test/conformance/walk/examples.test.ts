import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import { expect, onTestFinished, test } from 'vitest'
import type { Digest } from '../../../src/base/digest.ts'
import { builtInRoles } from '../../../src/base/roles.ts'
import type { ImageWorld } from '../../contents/counts/image-world.ts'
import { makeOrganisation, ok, startTestServer } from '../../support/test-server.ts'
import { mirrorExample, pushExampleImage, untilRead } from './example-image.ts'
import { exampleSteps, type ExampleRequest } from './example-steps.ts'

interface Described {
  readonly operationId: string
  readonly requestBody?: { readonly content: { readonly 'application/json': { readonly example?: JsonValue } } }
  readonly responses: { readonly 200: { readonly content?: { readonly 'application/json'?: { readonly example?: JsonValue } } } }
}

interface Place {
  readonly verb: string
  readonly path: string
  readonly described: Described
}

const file = new URL('../../../src/server/openapi/v2.json', import.meta.url)
const { paths } = JSON.parse(readFileSync(file, 'utf8')) as { paths: Readonly<Record<string, Readonly<Record<string, Described>>>> } // written by tools/openapi

const places = new Map<string, Place>(
  Object.entries(paths).flatMap(([path, verbs]) =>
    Object.entries(verbs).map(([verb, described]) => [described.operationId, { verb: verb.toUpperCase(), path, described }] as const),
  ),
)

const recordedFile = new URL('../../../tools/openapi/examples.json', import.meta.url)
const recorded = JSON.parse(readFileSync(recordedFile, 'utf8')) as Readonly<Record<string, { readonly body?: JsonValue; readonly answer: JsonValue }>> // written by this test

const uids = /\b[0-9a-f]{40}(?:\/[0-9a-f]{16})*\b/g
const times = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z$/
const uuids = /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g
/** Fields whose values differ each time, and what the examples have instead. */
const changing: Readonly<Record<string, string>> = { etag: '8c2f4a', secret: 'shown-only-once', code: 'shown-only-once', keyId: 'k-1' }

/** Replaces what differs each time, so that all runs give the same examples. */
class Steady {
  readonly #names: Map<string, string>
  readonly #baseUrl: string

  constructor(baseUrl: string, known: Readonly<Record<string, string>>) {
    this.#baseUrl = baseUrl
    // Built-in roles have the same uid everywhere.
    this.#names = new Map([...builtInRoles.map(({ uid }) => [uid, uid] as const), ...Object.entries(known)])
  }

  /** Returns a copy of a value. `place` names it among all examples. */
  of(value: JsonValue, place: string): JsonValue {
    if (typeof value === 'string') return this.#text(value, place)
    if (Array.isArray(value)) return inOrder(value).map((item, index) => this.of(item, `${place}[${index}]`))
    if (typeof value !== 'object' || value === null) return value
    const fields = Object.entries(value).map(([key, inner]) => [
      key,
      this.of(typeof inner === 'string' && inner !== '' ? (changing[key] ?? inner) : inner, `${place}.${key}`),
    ])
    return Object.fromEntries(fields) as JsonObject
  }

  #text(text: string, place: string): string {
    if (times.test(text)) return '2026-11-02T09:00:00Z'
    return text
      .replaceAll(this.#baseUrl, 'https://taproot.example')
      .replaceAll(uids, (uid) =>
        uid
          .split('/')
          .map((part) => this.#nameOf(part, place))
          .join('/'),
      )
      .replaceAll(uuids, '0b6f6f3e-3f0b-4a55-9a57-5d1f0f7c4b1e')
  }

  #nameOf(part: string, place: string): string {
    const name = this.#names.get(part) ?? createHash('sha256').update(place).digest('hex').slice(0, part.length)
    this.#names.set(part, name)
    return name
  }
}

/** Returns the items in an order that does not depend on their uids. */
function inOrder(items: readonly JsonValue[]): readonly JsonValue[] {
  const key = (item: JsonValue): string => JSON.stringify(item).replaceAll(uids, '')
  return items.toSorted((one, other) => (key(one) < key(other) ? -1 : 1))
}

function urlOf({ path }: Place, request: ExampleRequest): string {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => request.path?.[name] ?? expect.fail(`no ${name} for ${path}`))
  return `${filled}?${new URLSearchParams(request.query)}`
}

/** Operations that read and change records, and have no example: they are for operators, or need a setting or another service. */
const withoutExample: readonly string[] = [
  'checkAccountAssociation',
  'checkEligibility',
  'createRootGroup',
  'getHeadlessSession',
  'getRawVulnReport',
  'listCatalogues',
  'listFeeds',
  'listTermsAcceptances',
]

test('every operation that creates, reads, lists, checks or changes a record has an example', () => {
  const shown = new Set(exampleSteps.map(([operationId]) => operationId))
  const missing = [...places.keys()].filter((operationId) => /^(?:create|get|list|update|check)/.test(operationId) && !shown.has(operationId))
  expect(missing.toSorted()).toEqual(withoutExample)
})

test.each(exampleSteps.map(([operationId]) => operationId))('the OpenAPI document has the example of %s', (operationId) => {
  const { described } = places.get(operationId) ?? expect.fail(`no operation ${operationId}`)
  const { body, answer } = recorded[operationId] ?? expect.fail(`no example of ${operationId}`)
  expect(described.requestBody?.content['application/json'].example).toEqual(body)
  expect(described.responses[200].content?.['application/json']?.example).toEqual(answer)
})

test('the examples of the OpenAPI document are what the server answers', async () => {
  const server = await startTestServer({ env: { TAPROOT_EVENTS_DELIVER: 'false', TAPROOT_REGISTRY_READ_CONTENTS: 'true' } })
  onTestFinished(() => server.stop())
  const { group: demo, owner, token } = await makeOrganisation(server, 'demo')
  const ownerPart = owner.split('/').at(-1) ?? ''
  const steady = new Steady(server.config.baseUrl, { [demo]: createHash('sha256').update('demo').digest('hex').slice(0, 40), [ownerPart]: 'a1b2c3d4e5f60718' })
  // Answers show the caller too.
  const identity = { uid: owner, name: 'ada', claimMatch: { issuer: 'https://login.shop.example', subject: 'ada' } }
  ok(await server.rest.call('UpdateIdentity', { identity }, { token: await server.operatorToken() }))
  const answers = new Map<string, JsonObject>()
  const answer = (operationId: string): JsonObject => answers.get(operationId) ?? expect.fail(`no answer of ${operationId} yet`)
  const uid = (operationId: string): string => String(answer(operationId)['uid'])
  const story = { demo, owner, answer, uid, digest: '' }
  const imageWorld = (): ImageWorld => ({ server, group: demo, owner, token, repo: uid('createRepo'), path: 'demo/web/cart' })
  /** What is done before an operation. */
  const preparations: Readonly<Record<string, () => Promise<void>>> = {
    listMirrors: () => mirrorExample(imageWorld()),
    createTag: async () => void (story.digest = await pushExampleImage(imageWorld())),
    listPackages: () => untilRead(imageWorld(), story.digest as Digest),
  }
  const examples: Record<string, JsonValue> = {}
  for (const [operationId, requestOf] of exampleSteps) {
    const place = places.get(operationId) ?? expect.fail(`no operation ${operationId}`)
    await preparations[operationId]?.()
    const request = requestOf(story)
    const response = await fetch(`${server.config.baseUrl}${urlOf(place, request)}`, {
      method: place.verb,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
    })
    const text = await response.text()
    expect([operationId, response.status, text]).toEqual([operationId, 200, expect.any(String)])
    const json = JSON.parse(text) as JsonObject // the API answers an object
    answers.set(operationId, json)
    examples[operationId] = steady.of({ ...request, answer: json }, operationId)
  }
  await expect(`${JSON.stringify(examples, undefined, 1)}\n`).toMatchFileSnapshot(fileURLToPath(recordedFile))
})
