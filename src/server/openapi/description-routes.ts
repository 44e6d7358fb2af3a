import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { create, toBinary } from '@bufbuild/protobuf'
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import { fileDescriptors } from '../../base/schema/schema.ts'
import { emptyAnswer } from '../../transport/web/web-answers.ts'
import type { WebRequest } from '../../transport/web/web-request.ts'
import type { WebRoute } from '../../transport/web/web-routes.ts'

/** The files of the OpenAPI documents next to this module, by the path that serves them. */
const files: Readonly<Record<string, { readonly name: string; readonly type: string }>> = {
  '/openapi.json': { name: 'v2.json', type: 'application/json; charset=utf-8' },
  '/openapi.yaml': { name: 'v2.yaml', type: 'application/yaml; charset=utf-8' },
  '/openapi-v1.json': { name: 'v1.json', type: 'application/json; charset=utf-8' },
  '/openapi-v1.yaml': { name: 'v1.yaml', type: 'application/yaml; charset=utf-8' },
}

/** Returns the route of a file that changes only with the version of the product. */
function fileRoute(path: string, { body, type }: { readonly body: Uint8Array; readonly type: string }, limit: WebRoute['limit']): WebRoute {
  const etag = `"${createHash('sha256').update(body).digest('base64url')}"`
  const headers = { 'Cache-Control': 'public, max-age=300', ETag: etag }
  // A proxy that compresses the file makes the tag weak (RFC 9110, 13.1.2).
  const isKnown = (ifNoneMatch = ''): boolean => ifNoneMatch.split(',').some((tag) => ['*', etag].includes(tag.trim().replace(/^W\//, '')))
  return {
    ...{ method: 'GET', path, limit },
    handle: (request) =>
      isKnown(request.header('if-none-match')) ? emptyAnswer(304, headers) : { status: 200, headers: { ...headers, 'Content-Type': type }, body },
  }
}

/** Returns the routes of the descriptions of the API: OpenAPI documents, and the descriptors of the schema. They need no token. */
export function descriptionRoutes({ limit }: { readonly limit: (request: WebRequest) => void }): WebRoute[] {
  const descriptors = toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file: [...fileDescriptors] }))
  return [
    ...Object.entries(files).map(([path, { name, type }]) => fileRoute(path, { body: readFileSync(new URL(name, import.meta.url)), type }, limit)),
    fileRoute('/proto.binpb', { body: descriptors, type: 'application/x-protobuf' }, limit),
  ]
}
