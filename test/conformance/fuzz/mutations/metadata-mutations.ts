import type { GrpcMutation } from './proto-mutations.ts'
import { headerSafe, nastyText } from '../nasty.ts'
import type { Random } from '../random.ts'

type Value = string | ((random: Random) => string)

function metadata(name: string, values: readonly Value[]): GrpcMutation {
  return {
    name: `metadata ${name}`,
    apply: (draft, random) => {
      const value = random.pick(values)
      draft.headers[name] = headerSafe(typeof value === 'string' ? value : value(random)).slice(0, 12_000)
    },
  }
}

function path(name: string, change: (path: string, random: Random) => string): GrpcMutation {
  return { name: `method: ${name}`, apply: (draft, random) => void (draft.path = change(draft.path, random)) }
}

function many(name: string, make: (random: Random) => Record<string, string | string[]>): GrpcMutation {
  return { name: `metadata: ${name}`, apply: (draft, random) => void Object.assign(draft.headers, make(random)) }
}

/** Unusual metadata and method names. */
export const metadataMutations: readonly GrpcMutation[] = [
  metadata('authorization', ['', 'Bearer', 'Bearer x', 'Bearer a.b.c', 'Basic !!', nastyText, (random) => `Bearer ${random.bytes(100).toString('base64url')}`]),
  metadata('grpc-timeout', ['0n', '1n', '1u', '100m', '99999999H', '8S', '-1S', '1', 'S', '1x', '1.5S', '123456789S', '', ' 1S', nastyText]),
  metadata('content-type', [
    'application/grpc',
    'application/grpc+proto',
    'application/grpc+json',
    'application/grpcx',
    'application/grpc; charset=x',
    'application/json',
    'text/plain',
    '',
    'application/grpc-web',
  ]),
  metadata('grpc-encoding', ['identity', 'gzip', 'x', '', '__proto__', nastyText]),
  metadata('grpc-accept-encoding', ['gzip', 'x', '', nastyText]),
  metadata('te', ['trailers']),
  metadata('if-match', ['*', '"x"', 'W/"', nastyText]),
  metadata('if-none-match', ['*', nastyText]),
  metadata('idempotency-key', ['x', '', nastyText, 'a'.repeat(9000)]),
  metadata('validate-only', ['true', 'false', '1', 'x', '', nastyText]),
  metadata('force-ownership', ['true', nastyText]),
  metadata('taproot-identity', ['x', 'a'.repeat(40), nastyText]),
  metadata('x-request-id', ['x', '', 'a'.repeat(500), nastyText]),
  metadata('x-forwarded-for', ['1.2.3.4, ::1', nastyText, Array(500).fill('10.0.0.1').join(',')]),
  metadata('traceparent', ['00-0-0-0', nastyText]),
  metadata('user-agent', ['', nastyText]),
  metadata('grpc-tags-bin', ['AAAA', '!!!!', '=', 'A', nastyText]),
  metadata('x-data-bin', ['AAAA,BBBB', '\\', 'é', '%', '', nastyText]),
  metadata('grpc-status', ['0', '13', 'x']),
  metadata('grpc-message', ['x', '%zz']),
  metadata('grpc-previous-rpc-attempts', ['1', '-1', 'x']),
  metadata('cookie', ['a=b', nastyText]),
  metadata(':authority', ['evil.example', '', 'a b', nastyText]),
  metadata(':scheme', ['https', 'x']),
  metadata(':method', ['GET', 'PUT', 'OPTIONS']),
  many('many', () => Object.fromEntries(Array.from({ length: 90 }, (_, at) => [`x-many-${at}`, 'x']))),
  many('thousands', () => Object.fromEntries(Array.from({ length: 3000 }, (_, at) => [`x-many-${at}`, 'x']))),
  many('repeated', () => ({ 'x-request-id': ['a', 'b', 'c'], 'if-match': ['a', 'b'], 'idempotency-key': ['a', 'b'] })),
  many('huge', () => ({ 'x-large': 'x'.repeat(60_000) })),
  many('too huge', () => ({ 'x-large': 'x'.repeat(500_000) })),
  many('like a prototype', () => ({ constructor: 'x', tostring: 'x', ['__proto__']: 'x' })),
  many('binary, repeated', () => ({ 'a-bin': ['AAAA', '!', 'BBBB'] })),
  path('unknown', (text, random) => `${text}${random.pick(['x', '/', '//', '?a=b', '%00', '#', ' '])}`),
  path('other service', (text, random) => text.replace(/^\/[^/]*/, random.pick(['/x', '/', '/taproot', '/grpc.health.v1.Health', '/__proto__', '']))),
  path('other namespace', (text) => text.replace('/taproot.', '/chainguard.platform.')),
  path('case', (text) => text.toLowerCase()),
  path('none', (_text, random) => random.pick(['/', '//', '', '*', 'x', '/constructor', '/a/b/c', '/%2f', '/é'])),
  path('long', (text) => `${text}${'x'.repeat(10_000)}`),
  path('other text', (_text, random) => `/${headerSafe(nastyText(random)).slice(0, 5000)}`),
  path('of the library', (_text, random) =>
    random.pick([
      '/grpc.health.v1.Health/Check',
      '/grpc.health.v1.Health/List',
      '/grpc.health.v1.Health/Watch',
      '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
      '/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo',
    ]),
  ),
]
