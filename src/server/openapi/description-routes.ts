import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { create, toBinary } from '@bufbuild/protobuf'
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import { fileDescriptors } from '../../base/schema/schema.ts'
import type { HttpAnswer } from '../../transport/http/http-context.ts'
import { emptyAnswer, jsonAnswer } from '../../transport/web/web-answers.ts'
import type { WebRequest } from '../../transport/web/web-request.ts'
import type { WebRoute } from '../../transport/web/web-routes.ts'
import { referencePage, startPage, type PublicLink } from './web-pages.js'

const json = 'application/json; charset=utf-8'
const yaml = 'application/yaml; charset=utf-8'

/** The OpenAPI documents next to this module, by the path that serves them. */
const documents = {
  '/openapi.json': { name: 'v2.json', type: json },
  '/openapi.yaml': { name: 'v2.yaml', type: yaml },
  '/openapi-v1.json': { name: 'v1.json', type: json },
  '/openapi-v1.yaml': { name: 'v1.yaml', type: yaml },
} as const

/** The pages of the API reference: the document that each shows. */
const references = { '/docs': '/openapi.json', '/docs/v1': '/openapi-v1.json' } as const satisfies Record<string, keyof typeof documents>

/** The links of the start page, by their names in its JSON form. */
const links = {
  docs: { path: '/docs', text: 'API reference' },
  docsV1: { path: '/docs/v1', text: 'API reference, version 1' },
  openapi: { path: '/openapi.json', text: 'OpenAPI document' },
  openapiV1: { path: '/openapi-v1.json', text: 'OpenAPI document, version 1' },
  descriptors: { path: '/proto.binpb', text: 'Descriptors of the protobuf schema' },
  discovery: { path: '/.well-known/openid-configuration', text: 'Discovery document of the token issuer' },
  device: { path: '/oauth/device', text: 'Sign in on a device that shows a code' },
  health: { path: '/ping/v2/ping', text: 'Health' },
} as const satisfies Record<string, PublicLink>

const startLink: PublicLink = { path: '/', text: 'Start' }

/** Starts Swagger UI. Its validator is off, because it is a service of another host. Credentials stay in the memory of the page. */
const startScript = `const place = document.getElementById('swagger-ui')
SwaggerUIBundle({
  domNode: place,
  url: place.dataset.description,
  deepLinking: true,
  docExpansion: 'none',
  validatorUrl: null,
  persistAuthorization: false,
})
`

/** Time for which clients keep an answer without asking again. An address that changes with its content is kept for a year. */
const cacheControl = { brief: 'public, max-age=300', lasting: 'public, max-age=31536000, immutable' } as const

/** Content that changes only with the version of the product. */
interface Fixed {
  readonly hash: string
  handle(request: WebRequest): HttpAnswer
}

function fixed({ headers: own, body }: Pick<HttpAnswer, 'headers' | 'body'>, kept: keyof typeof cacheControl = 'brief'): Fixed {
  const bytes = Buffer.concat([body].flat().map((piece) => Buffer.from(piece)))
  const hash = createHash('sha256').update(bytes).digest('base64url')
  const etag = `"${hash}"`
  const headers = { ...own, 'Cache-Control': cacheControl[kept], ETag: etag }
  // A proxy that compresses the content makes the tag weak (RFC 9110, 13.1.2).
  const isKnown = (ifNoneMatch = ''): boolean => ifNoneMatch.split(',').some((tag) => ['*', etag].includes(tag.trim().replace(/^W\//, '')))
  return {
    hash,
    handle: (request) => (isKnown(request.header('if-none-match')) ? emptyAnswer(304, headers) : { status: 200, headers, body: bytes }),
  }
}

/** Returns the files of the API reference by path. */
function referenceFiles(): Readonly<Record<'/docs/swagger-ui.css' | '/docs/swagger-ui-bundle.js' | '/docs/start.js', Fixed>> {
  const require = createRequire(import.meta.url)
  const folder = dirname(require.resolve('swagger-ui-dist/package.json'))
  const file = (name: string, type: string): Fixed =>
    fixed({ headers: { 'Content-Type': `${type}; charset=utf-8` }, body: readFileSync(join(folder, name)) }, 'lasting')
  return {
    '/docs/swagger-ui.css': file('swagger-ui.css', 'text/css'),
    '/docs/swagger-ui-bundle.js': file('swagger-ui-bundle.js', 'text/javascript'),
    '/docs/start.js': fixed({ headers: { 'Content-Type': 'text/javascript; charset=utf-8' }, body: startScript }, 'lasting'),
  }
}

/** Returns the pages of the API reference and their files, by path. */
function reference(): [string, Fixed][] {
  const files = referenceFiles()
  const address = (path: keyof typeof files): string => `${path}?v=${files[path].hash}`
  const parts = { style: address('/docs/swagger-ui.css'), library: address('/docs/swagger-ui-bundle.js'), start: address('/docs/start.js') }
  const pages = Object.entries(references).map(([path, description]): [string, Fixed] => {
    const others = [startLink, links.docs, links.docsV1].filter((link) => link.path !== path)
    return [path, fixed(referencePage({ description, links: others, ...parts }))]
  })
  return [...pages, ...Object.entries(files)]
}

/** Returns how the root of the API answers: with a page to browsers, and with the same links in JSON to programs. */
function start(): Pick<WebRoute, 'handle'> {
  const varies = (answer: HttpAnswer): Fixed => fixed({ ...answer, headers: { ...answer.headers, Vary: 'Accept' } })
  const page = varies(startPage(Object.values(links)))
  const index = varies(jsonAnswer(200, Object.fromEntries(Object.entries(links).map(([name, { path }]) => [name, path]))))
  return { handle: (request) => (request.accepts(['application/json', 'text/html']) === 'text/html' ? page : index).handle(request) }
}

/** Returns the routes of the start page and of the descriptions of the API: reference, OpenAPI documents, descriptors of the schema. They need no token. */
export function descriptionRoutes({ limit }: { readonly limit: (request: WebRequest) => void }): WebRoute[] {
  const descriptors = toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file: [...fileDescriptors] }))
  const contents: [string, Pick<WebRoute, 'handle'>][] = [
    ['/', start()],
    ...reference(),
    ...Object.entries(documents).map(([path, { name, type }]): [string, Fixed] => [
      path,
      fixed({ headers: { 'Content-Type': type }, body: readFileSync(new URL(name, import.meta.url)) }),
    ]),
    ['/proto.binpb', fixed({ headers: { 'Content-Type': 'application/x-protobuf' }, body: descriptors })],
  ]
  return contents.map(([path, { handle }]) => ({ method: 'GET', path, limit, handle }))
}
