import { nastyText } from '../nasty.ts'
import type { OtherRequest } from './other-request.ts'
import type { Corpus, Field } from '../protocol.ts'
import type { Random } from '../random.ts'

const digests = [
  `sha256:${'a'.repeat(64)}`,
  `sha512:${'b'.repeat(128)}`,
  'sha256:x',
  'md5:1',
  'sha256:',
  `sha256:${'A'.repeat(64)}`,
  '..',
  '%00',
  'latest',
  ':',
]
const uploads = ['00000000-0000-4000-8000-000000000000', 'x', '..', '%2e%2e']

const repo = ({ registry }: Corpus, random: Random): string =>
  random.pick([registry.path, registry.path, `${registry.path}/x`, 'unknown/app', 'a', '..', '__proto__/x', 'A/B', 'x'.repeat(300)])
const text = (random: Random): string => encodeURIComponent(nastyText(random).toWellFormed()).slice(0, 8000)

/** The headers and body of a request to the registry host. */
interface Along {
  readonly query?: (corpus: Corpus, random: Random) => Field[]
  readonly form?: (random: Random) => Field[]
  readonly body?: (random: Random) => Buffer
  readonly headers?: readonly Field[]
}

/** A request to the registry host by one of the callers. Its errors have the registry format. */
function host(verb: string, path: (corpus: Corpus, random: Random) => string, { query, form, body, headers = [] }: Along = {}): OtherRequest {
  return {
    name: `registry ${verb}`,
    port: 'registry',
    verb,
    forms: ['registry'],
    make: (corpus, random) => ({
      path: path(corpus, random),
      query: query?.(corpus, random) ?? [],
      ...(form === undefined ? {} : { form: form(random) }),
      ...(body === undefined ? {} : { body: body(random) }),
      headers: [...headers, ['Authorization', random.pick(corpus.registry.authorizations)]],
    }),
  }
}

/** A request about a repo. */
function registry(verb: string, tail: (random: Random) => string, along?: Along): OtherRequest {
  return host(verb, (corpus, random) => `/v2/${repo(corpus, random)}/${tail(random)}`, along)
}

const digestQuery = (_: Corpus, random: Random): Field[] => [['digest', random.pick(digests)]]
const manifests = [
  '{}',
  '{"schemaVersion":2}',
  '[]',
  '',
  'null',
  '{"schemaVersion":2,"config":{"digest":"x","size":-1},"layers":[{}]}',
  `{"schemaVersion":2,"manifests":[${'{},'.repeat(2000)}{}]}`,
  '['.repeat(10_000),
]
const manifestTypes = [
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
  'text/plain',
]

const paths = ['/', '/favicon.ico', '/openapi.json', '/docs', '/.git/config', '/__proto__', '/constructor'] as const
const opsPaths = ['/metrics', '/healthz', '/readyz', '/', '/__proto__', '/metrics/', '/../metrics', '/constructor'] as const

/** Endpoints of the registry host and its /token, missing paths, and the ops port. */
export const registryEndpoints: readonly OtherRequest[] = [
  {
    ...host('GET', () => '/token', {
      query: (corpus, random) => [
        ['service', random.pick([corpus.registry.host, nastyText(random)])],
        ...Array.from({ length: random.below(4) }, (): Field => {
          const scopes = [
            `repository:${corpus.registry.path}:pull,push`,
            'repository::',
            ':::',
            'registry:catalog:*',
            `repository:${nastyText(random)}:pull`,
            'repository:a:',
          ]
          return ['scope', random.pick(scopes)]
        }),
        ...(random.chance(0.2)
          ? ([
              ['offline_token', 'true'],
              ['account', nastyText(random)],
            ] as const)
          : []),
      ],
    }),
    name: 'token',
  },
  {
    ...host('POST', () => '/token', {
      form: (random) => [
        ['grant_type', random.pick(['password', 'refresh_token', '', 'x'])],
        ['username', nastyText(random)],
        ['password', nastyText(random)],
        ['scope', nastyText(random)],
        ['service', 'x'],
      ],
    }),
    name: 'token by a form',
  },
  { ...host('GET', (_, random) => random.pick(['/v2/', '/v2', '/v2/_catalog', '/', '/v1/', '/v2//', '/v2/..'])), name: 'registry base' },
  { ...host('GET', () => '/healthz'), name: 'registry health', forms: ['none'] },
  registry('GET', (random) => `manifests/${random.pick(digests)}`),
  registry('HEAD', (random) => `manifests/${random.pick(digests)}`),
  registry('DELETE', (random) => `manifests/${random.pick(digests)}`),
  registry('PUT', (random) => `manifests/${random.pick(digests)}`, {
    body: (random) => Buffer.from(random.pick(manifests)),
    headers: [['Content-Type', manifestTypes[0] ?? '']],
  }),
  registry('PUT', (random) => `manifests/tag-${random.below(5)}`, {
    body: (random) => Buffer.from(random.pick(manifests)),
    headers: [['Content-Type', manifestTypes[1] ?? '']],
  }),
  registry('GET', (random) => `blobs/${random.pick(digests)}`, { headers: [['Range', 'bytes=5-1']] }),
  registry('DELETE', (random) => `blobs/${random.pick(digests)}`),
  registry('POST', () => 'blobs/uploads/', {
    query: (corpus, random) => [
      ['mount', random.pick(digests)],
      ['from', random.pick([corpus.registry.path, nastyText(random)])],
    ],
    body: () => Buffer.alloc(0),
  }),
  registry('POST', () => 'blobs/uploads/', { query: digestQuery, body: (random) => random.bytes(20) }),
  registry('PATCH', (random) => `blobs/uploads/${random.pick(uploads)}`, { body: (random) => random.bytes(20), headers: [['Content-Range', '5-1']] }),
  registry('PUT', (random) => `blobs/uploads/${random.pick(uploads)}`, { query: digestQuery, body: (random) => random.bytes(20) }),
  registry('GET', () => 'tags/list', {
    query: (_, random) => [
      ['n', random.pick(['0', '-1', '1e9', 'x', ''])],
      ['last', nastyText(random)],
    ],
  }),
  registry('GET', (random) => `referrers/${random.pick(digests)}`, { query: (_, random) => [['artifactType', nastyText(random)]] }),
  registry('GET', (random) => `_service/history/${random.pick(['latest', text(random)])}`, {
    query: (_, random) => [
      ['start', nastyText(random)],
      ['end', random.pick(['0', '9999-12-31T23:59:59Z'])],
    ],
  }),
  registry('GET', text),
  { name: 'nothing there', port: 'api', verb: 'GET', forms: ['status'], make: (_, random) => ({ path: random.pick(paths) }) },
  { name: 'ops', port: 'ops', verb: 'GET', forms: ['none'], make: (_, random) => ({ path: random.pick(opsPaths) }) },
]
