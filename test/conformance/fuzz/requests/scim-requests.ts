import { scimEndpoints } from '../../../../src/iam/scim/http/scim-endpoints.ts'
import type { OtherParts, OtherRequest } from './other-request.ts'
import type { Corpus, Field } from '../protocol.ts'
import type { Random } from '../random.ts'

const core = 'urn:ietf:params:scim:schemas:core:2.0'
const messages = 'urn:ietf:params:scim:api:messages:2.0'
const enterprise = 'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User'

const filters = [
  'userName eq "a"',
  'userName sw "fuzz" and active eq true',
  'not (emails[type eq "work" and value co "@"] or meta.created gt "2020-01-01T00:00:00Z")',
  `${enterprise}:department pr`,
  '(((externalId eq "x")))',
] as const

const operations: readonly object[] = [
  { op: 'replace', path: 'active', value: false },
  { op: 'Add', path: 'emails', value: [{ value: 'a@b.example', type: 'work', primary: true }] },
  { op: 'replace', path: 'emails[type eq "work"].value', value: 'c@d.example' },
  { op: 'remove', path: 'phoneNumbers[type eq "fax"]' },
  { op: 'replace', value: { displayName: 'x', 'name.familyName': 'y', [`${enterprise}:department`]: 'z' } },
  { op: 'remove', path: `${enterprise}:manager` },
]

function user(random: Random): object {
  return {
    schemas: [`${core}:User`, enterprise],
    userName: `fuzz-${random.below(1_000_000)}@example.com`,
    externalId: `external-${random.below(1_000_000)}`,
    name: { givenName: 'A', familyName: 'B' },
    emails: [{ value: 'a@b.example', type: 'work', primary: true }],
    active: random.chance(0.8),
    [enterprise]: { department: 'c', manager: { value: 'd' } },
  }
}

const search = (random: Random): object => ({
  schemas: [`${messages}:SearchRequest`],
  filter: random.pick(filters),
  startIndex: 1,
  count: random.below(20),
  attributes: ['userName', 'emails.value'],
})

/** Bodies of the endpoints that accept one. */
const bodies: Readonly<Record<string, (random: Random) => object>> = {
  'POST Users': user,
  'PUT Users/*': user,
  'PATCH Users/*': (random) => ({ schemas: [`${messages}:PatchOp`], Operations: random.some(operations, 1 + random.below(3)) }),
  'POST Users/.search': search,
  'POST .search': search,
  'POST Bulk': (random) => ({ schemas: [`${messages}:BulkRequest`], Operations: [{ method: 'POST', path: '/Users', bulkId: 'a', data: user(random) }] }),
}

function query(endpoint: string, random: Random): Field[] {
  const fields: Field[] = [['attributes', random.pick(['userName', 'emails.value,active', `${core}:User:name`, enterprise])]]
  if (endpoint === 'GET Users') fields.push(['filter', random.pick(filters)], ['startIndex', '1'], ['count', String(random.below(10))])
  return random.some(fields, random.below(fields.length + 1))
}

/** Returns a name for the `*` of an endpoint. */
function nameIn(endpoint: string, { scim }: Corpus, random: Random): string {
  // Some users are kept for the other requests.
  if (endpoint.includes('Users/')) return random.pick(endpoint.startsWith('DELETE') ? scim.ids.slice(0, 3) : scim.ids)
  return encodeURIComponent(random.pick(endpoint.includes('Schemas/') ? [`${core}:User`, enterprise, 'x'] : ['User', 'x']))
}

function partsOf(endpoint: string, corpus: Corpus, random: Random): OtherParts {
  const [, path = ''] = endpoint.split(' ')
  const { provider, token } = corpus.scim
  // A copy, because it is changed in place.
  const json = structuredClone(bodies[endpoint]?.(random))
  return {
    path: `/scim/v2/${provider}/${path.replace('*', nameIn(endpoint, corpus, random))}`,
    query: query(endpoint, random),
    headers: [
      ['Authorization', `Bearer ${token}`],
      ...(json === undefined ? [] : [['Content-Type', random.pick(['application/scim+json', 'application/json'])] as const]),
      ...(random.chance(0.1) ? [['If-Match', random.pick(['*', 'W/"x"'])] as const] : []),
    ],
    ...(json === undefined ? {} : { json }),
  }
}

/** Every endpoint of a provider's SCIM server, with every verb. */
export const scimRequests: readonly OtherRequest[] = Object.entries(scimEndpoints).flatMap(([path, byVerb]) =>
  Object.keys(byVerb).map((verb): OtherRequest => {
    const endpoint = `${verb} ${path}`
    const make = (corpus: Corpus, random: Random): OtherParts => partsOf(endpoint, corpus, random)
    return { name: `SCIM ${endpoint}`, route: `${verb} /scim/v2{/*path}`, port: 'api', verb, forms: ['scim'], make }
  }),
)
