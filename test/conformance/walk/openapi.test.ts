import { readFileSync } from 'node:fs'
import { fromJson, toJson, type JsonObject, type JsonValue } from '@bufbuild/protobuf'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { MethodRow } from '../../../src/base/schema/method.ts'
import { methods, registry } from '../../../src/base/schema/schema.ts'
import type { TestServer } from '../../support/test-server.ts'
import { walk, type Walked } from './cases/cases.ts'
import { makeWorld, startWalkServer, tokenWith, type World } from './world.ts'
import { describeOnStoresOfTier } from '../../support/parts/require-part.ts'

interface Parameter {
  readonly name: string
  readonly in: 'path' | 'query' | 'header'
  readonly $ref?: string
}

interface Operation {
  readonly operationId: string
  readonly parameters: readonly Parameter[]
  readonly requestBody?: object
  readonly responses: Readonly<Record<string, { readonly content?: object }>>
  readonly 'x-grpc-method': string
}

type Document = { readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>> }

const documents = ['v2', 'v1'].map((version) => {
  const text = readFileSync(new URL(`../../../src/server/openapi/${version}.json`, import.meta.url), 'utf8')
  return { version, document: JSON.parse(text) as Document } // written by tools/openapi
})

/** The operation of each method, with its place in the document: the one that names the most in its path. */
const operations = new Map(
  documents
    .flatMap(({ version, document }) =>
      Object.entries(document.paths).flatMap(([path, verbs]) =>
        Object.entries(verbs).map(([verb, operation]) => ({
          version,
          path,
          verb,
          operation,
          pointer: `/paths/${path.replaceAll('~', '~0').replaceAll('/', '~1')}/${verb}`,
        })),
      ),
    )
    .toSorted((one, other) => one.path.length - other.path.length)
    .map((found) => [found.operation['x-grpc-method'], found] as const),
)

const ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true })
for (const { version, document } of documents) ajv.addSchema(document, version)

/** Returns what a schema of a document says against a value. */
function errorsOf(reference: string, value: unknown): unknown {
  const validate = ajv.getSchema(reference)
  if (validate === undefined) throw new Error(`no schema ${reference}`)
  return validate(value) ? [] : validate.errors
}

/** Yields the query parameters of a request, nested ones with dots. */
function* queryOf(request: JsonObject, prefix = ''): Generator<[string, string]> {
  for (const [key, value] of Object.entries(request)) {
    const values: readonly JsonValue[] = Array.isArray(value) ? value : [value]
    for (const one of values) {
      if (Array.isArray(value) && typeof one === 'object')
        yield [
          `${prefix}${key}`,
          Object.values(one ?? {})
            .map(String)
            .join(':'),
        ]
      else if (typeof one === 'object' && one !== null && !Array.isArray(one)) yield* queryOf(one, `${prefix}${key}.`)
      else yield [`${prefix}${key}`, String(one)]
    }
  }
}

const camelCase = (snake: string): string => snake.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())

/** Returns the path, query and body of a request, as the schema of its method places the fields. */
function requestOf(
  { http, input }: MethodRow,
  template: string,
  request: JsonObject,
): { path: string; query: [string, string][]; body: JsonValue | undefined } {
  const [binding] = http
  const rest = toJson(input, fromJson(input, request, { registry }), { registry }) as JsonObject // a message is an object
  let path = template
  // The variables of the document are in the order of those of the schema, whose names differ.
  for (const [, text = ''] of binding?.template.matchAll(/\{([a-z_.]+)/g) ?? []) {
    const names = text.split('.').map(camelCase)
    const holder = names.slice(0, -1).reduce<JsonObject>((part, name) => part[name] as JsonObject, rest) // a message of the request
    const last = names.at(-1) ?? ''
    path = path.replace(/\{\w+\}/, encodeURIComponent(String(holder[last] ?? '')))
    delete holder[last]
  }
  const field = camelCase(binding?.body ?? '')
  path = path.replace(/\/$/, '')
  if (field === '*') return { path, query: [], body: rest }
  const query = [...queryOf(rest)].filter(([name]) => field === '' || name.split('.')[0] !== field)
  return { path, query, body: field === '' ? undefined : (rest[field] ?? {}) }
}

describeOnStoresOfTier('the OpenAPI documents', (store) => {
  let server: TestServer
  let world: World
  beforeAll(async () => {
    server = await startWalkServer(store)
    world = await makeWorld(server)
  })
  afterAll(() => server.stop())

  test('have an operation for each method, with an id of its own', () => {
    const named = documents.flatMap(({ version, document }) =>
      Object.values(document.paths).flatMap((verbs) => Object.values(verbs).map(({ operationId }) => `${version} ${operationId}`)),
    )
    expect(new Set(named).size).toBe(named.length)
    const missing = methods.filter(({ streaming }) => !streaming).map(({ service, rpc }) => `${service}/${rpc}`)
    expect([...operations.keys()].toSorted()).toEqual(missing.toSorted())
  })

  test.each(['/openapi.json', '/openapi.yaml', '/openapi-v1.json', '/openapi-v1.yaml', '/proto.binpb'])('%s is served, and not sent twice', async (path) => {
    const url = `http://127.0.0.1:${server.config.api.port}${path}`
    const first = await fetch(url)
    expect(first.status).toBe(200)
    expect((await first.bytes()).length).toBeGreaterThan(10_000)
    // Weak, since the answer has a content coding.
    const etag = first.headers.get('etag') ?? ''
    expect(etag).toMatch(/^W\/"/)
    for (const [tags, status] of [
      [etag, 304],
      [etag.slice(2), 304],
      [`"other", ${etag}`, 304],
      ['*', 304],
      ['"other"', 200],
    ] as const)
      expect((await fetch(url, { headers: { 'if-none-match': tags } })).status, tags).toBe(status)
  })

  test.each([
    ['an empty text that is required', 'taproot.iam.v2.GroupsService/CreateGroup', { name: '' }],
    [
      'a key that must be a number',
      'taproot.iam.v2.AccountAssociationsService/CreateAccountAssociation',
      { name: 'accounts', github: { appInstallations: { one: {} } } },
    ],
  ])('refuse %s, as the server does', async (_, name, body) => {
    const { version, pointer, path } = operations.get(name) ?? expect.fail('no operation')
    expect(errorsOf(`${version}#${pointer}/requestBody/content/application~1json/schema`, body)).not.toEqual([])
    const response = await fetch(`http://127.0.0.1:${server.config.api.port}${path.replace(/\{\w+\}/, encodeURIComponent(world.group))}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${world.token}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    expect([response.status, ((await response.json()) as { code: number }).code]).toEqual([400, 3])
  })

  const requested = walk.filter(({ method }) => !method.streaming)
  test.each(requested)('describe the request and the answer of $name', async ({ method, row, access }: Walked) => {
    const found = operations.get(`${method.service}/${method.rpc}`)
    if (found === undefined) expect.fail('no operation')
    const { operation, version, verb, pointer } = found
    const request = requestOf(method, found.path, await row.request(world))
    const token = await (row.caller?.(world) ?? tokenWith(world, [...method.capabilities, ...(row.grants ?? [])]))
    if (request.body !== undefined) expect(errorsOf(`${version}#${pointer}/requestBody/content/application~1json/schema`, request.body)).toEqual([])
    const known = operation.parameters.map(({ name }) => name)
    expect(request.query.map(([name]) => name).filter((name) => !known.includes(name))).toEqual([])
    const response = await fetch(`http://127.0.0.1:${server.config.api.port}${request.path}?${new URLSearchParams(request.query)}`, {
      method: verb.toUpperCase(),
      headers: { ...(access === 'public' ? {} : { authorization: `Bearer ${token}` }), 'content-type': 'application/json' },
      ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
    })
    const text = await response.text()
    expect(response.status, text).toBe(200)
    const [type] = (response.headers.get('content-type') ?? '').split(';')
    const { content } = operation.responses['200'] ?? {}
    if (content === undefined) expect(text).toBe('')
    else expect(errorsOf(`${version}#${pointer}/responses/200/content/${type?.replaceAll('/', '~1')}/schema`, JSON.parse(text))).toEqual([])
  })
})
