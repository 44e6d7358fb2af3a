import type { OtherRequest } from './other-request.ts'
import type { Corpus, Field } from '../protocol.ts'
import type { Random } from '../random.ts'

const packages = ['example', '@example/cart', '%2e%2e%2f%2e%2e', '__proto__', 'a'.repeat(300)] as const
const formats = ['json', 'openvex', 'csaf', 'osv', 'constructor', ''] as const
const types = ['application/json', 'application/vnd.openvex+json', 'application/vnd.csaf+json;q=0.1', 'text/html', '*/*', ';;q=,'] as const

function authorization({ tokens, outsider }: Corpus, random: Random): Field[] {
  return random.chance(0.5) ? [['Authorization', `Bearer ${random.pick([...tokens, outsider])}`]] : []
}

/** Requests for advisories in forms that other tools read. */
export const exportRequests: readonly OtherRequest[] = [
  {
    name: 'exported advisory document',
    route: 'GET /advisory/v2/documents/*id',
    port: 'api',
    verb: 'GET',
    forms: ['status'],
    make: (corpus, random) => ({
      path: `/advisory/v2/documents/${random.pick(packages)}`,
      query: random.chance(0.7) ? [['format', random.pick(formats)]] : [],
      headers: [...authorization(corpus, random), ['Accept', random.pick(types)]],
    }),
  },
  {
    name: 'exported advisories',
    route: 'GET /advisory/v2/osv.zip',
    port: 'api',
    verb: 'GET',
    forms: ['status'],
    make: (corpus, random) => ({ path: '/advisory/v2/osv.zip', headers: authorization(corpus, random) }),
  },
]
