import type { JsonObject } from '@bufbuild/protobuf'
import { trustedUid } from '../../../../src/base/uid.ts'
import { freshName } from '../../../support/test-server.ts'
import { OciClient } from '../../../registry/oci/oci-client.ts'
import { inCreate, long, type BadField } from '../bad-fields.ts'
import type { BadInput, MethodCase } from './method-case.ts'
import { made, type World } from '../world.ts'

const unheld = `sha256:${'0'.repeat(64)}`

/** A repo with an image in it. */
interface Pushed {
  readonly repo: string
  /** The digests of the tag, in order. */
  readonly digests: readonly string[]
}

/** Creates a repo below `parent` and pushes a tag to it `count` times, as the operator. */
export async function pushed(world: World, options: { parent?: string; tag?: string; times?: number } = {}): Promise<Pushed> {
  const { server, group, owner, other } = world
  const { parent = group, tag = 'latest', times = 1 } = options
  const name = freshName('repo')
  const repo = await made(world, 'CreateRepo', { parent, repo: { name } })
  const { host, port } = server.config.registry
  const identityUid = trustedUid(parent.startsWith(other.group) ? other.owner : owner)
  const act = { issuer: 'https://issuer.example', subject: 'walk', audience: host }
  const { token } = await server.running.signIn.tokens.mint({ identityUid, audiences: [host], act, restrictions: {} })
  const client = new OciClient(port, token)
  const path = parent.includes('/') ? `${parent.slice(0, 40)}/team/${name}` : `${parent}/${name}`
  const digests: string[] = []
  while (digests.length < times) digests.push((await client.pushImage(path, tag)).digest)
  client.close()
  return { repo, digests }
}

/** Creates a tag in a new repo, and returns its uid. */
export async function newTag(world: World): Promise<string> {
  const { repo, digests } = await pushed(world)
  return made(world, 'CreateTag', { parent: repo, tag: { name: 'made', digest: digests[0] ?? '' } })
}

const badTag: readonly BadField[] = [
  { what: 'no name', breaks: ['name:required'], clear: ['name'] },
  { what: 'a name that begins with a dot', breaks: ['name:string.pattern'], set: { name: '.hidden' } },
  { what: 'a name of 129 characters', breaks: ['name:string.pattern'], set: { name: long(129) } },
  { what: 'no digest', breaks: ['digest:required'], clear: ['digest'] },
  { what: 'a digest that is too short', breaks: ['digest:string.pattern'], set: { digest: 'sha256:00' } },
  { what: 'a digest of another algorithm', set: { digest: `sha512:${'0'.repeat(128)}` }, fields: ['digest'] },
  { what: 'a digest that the repo does not hold', set: { digest: unheld }, code: 9 },
  { what: 'more than 20 bundles', breaks: ['bundles:repeated.max_items'], set: { bundles: Array.from({ length: 21 }, () => 'base') } },
  { what: 'a bundle twice', breaks: ['bundles:repeated.unique'], set: { bundles: ['base', 'base'] } },
  { what: 'a bundle that is none', breaks: ['bundles[]:string.in'], set: { bundles: ['gold'] } },
  { what: 'a text for deprecated', only: 'rest', set: { deprecated: 'yes' }, fields: ['deprecated'] },
]

/** TagsService. */
const tagCases: Readonly<Record<string, MethodCase>> = {
  'TagsService/GetTag': { request: async (world): Promise<JsonObject> => ({ uid: await newTag(world) }), badInputs: [] },
  'TagsService/DeleteTag': { request: async (world) => ({ uid: await newTag(world) }), badInputs: [] },
  'TagsService/ListTags': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'created_at desc', pageSize: 200 }),
    list: { item: (world, parent) => pushed(world, { parent, tag: parent.startsWith(world.group) ? 'walk' : 'elsewhere' }), filters: () => [{ name: 'walk' }] },
    badInputs: [
      { what: 'a name that is too long', breaks: ['name:string.max_len'], request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] },
      { what: 'a digest that is too long', breaks: ['digest:string.max_len'], request: (valid) => ({ ...valid, digest: long(256) }), fields: ['digest'] },
      { what: 'a time that is none', only: 'rest', request: (valid) => ({ ...valid, updatedSince: 'yesterday' }), fields: ['updated_since'] },
    ],
  },
  'TagsService/CreateTag': {
    request: async (world) => {
      const { repo, digests } = await pushed(world)
      return { parent: repo, tag: { name: 'stable', digest: digests[0] ?? '' } }
    },
    badInputs: [
      { what: 'no tag at all', breaks: ['tag:required'], request: ({ parent = '' }) => ({ parent }), fields: ['name', 'digest'] },
      { what: 'a group for a parent', request: (valid, world) => ({ ...valid, parent: world.subgroup }), code: 5 },
      ...inCreate('tag', badTag),
    ],
  },
}

const badDigest: readonly BadInput[] = [
  { what: 'no digest', only: 'grpc', breaks: ['digest:required'], request: (valid) => ({ ...valid, digest: '' }), fields: ['digest'] },
  { what: 'a digest that is none', breaks: ['digest:string.pattern'], request: (valid) => ({ ...valid, digest: 'latest' }), fields: ['digest'] },
  { what: 'a digest that the repo does not hold', request: (valid) => ({ ...valid, digest: unheld }), code: 5 },
]

async function image(world: World): Promise<JsonObject> {
  const { repo, digests } = await pushed(world)
  return { repoUid: repo, digest: digests[0] ?? '' }
}

/** ImagesService. */
const imageCases: Readonly<Record<string, MethodCase>> = {
  'ImagesService/GetArchitectures': { request: image, badInputs: badDigest },
  'ImagesService/GetSize': {
    request: image,
    badInputs: [
      ...badDigest,
      {
        what: 'an architecture that is too long',
        breaks: ['architecture:string.max_len'],
        request: (valid) => ({ ...valid, architecture: long(65) }),
        fields: ['architecture'],
      },
      { what: 'an architecture that the image is not of', request: (valid) => ({ ...valid, architecture: 's390x' }), code: 5 },
    ],
  },
}

/** What all lists of ContentsService refuse. */
const badPages: readonly BadInput[] = [
  { what: 'a negative page size', breaks: ['page_size:int32.gte'], request: (valid) => ({ ...valid, pageSize: -1 }), fields: ['page_size'] },
  {
    what: 'a page token that is too long',
    breaks: ['page_token:string.max_len'],
    request: (valid) => ({ ...valid, pageToken: long(4097) }),
    fields: ['page_token'],
  },
  { what: 'a page token of another list', request: (valid) => ({ ...valid, pageToken: 'nonsense' }), fields: ['page_token'] },
  { what: 'a negative skip', breaks: ['skip:int32.gte'], request: (valid) => ({ ...valid, skip: -1 }), fields: ['skip'] },
]

/** What the lists about one image refuse. */
const badContents: readonly BadInput[] = [
  ...badDigest,
  { what: 'a platform that is too long', breaks: ['platform:string.max_len'], request: (valid) => ({ ...valid, platform: long(256) }), fields: ['platform'] },
  ...badPages,
]

/** What lists of vulnerabilities refuse. */
const badSeverities: readonly BadInput[] = [
  {
    what: 'too many severities',
    breaks: ['severity_levels:repeated.max_items'],
    request: (valid) => ({ ...valid, severityLevels: Array(11).fill(1) }),
    fields: ['severity_levels'],
  },
  {
    what: 'an unknown severity',
    breaks: ['severity_levels[]:enum.defined_only'],
    request: (valid) => ({ ...valid, severityLevels: [99] }),
    fields: ['severity_levels'],
  },
]

/** ContentsService. */
const contentsCases: Readonly<Record<string, MethodCase>> = {
  'ContentsService/ListPackages': {
    request: image,
    badInputs: [
      ...badContents,
      { what: 'a name that is too long', breaks: ['names[]:string.max_len'], request: (valid) => ({ ...valid, names: [long(513)] }), fields: ['names'] },
      { what: 'a type that is too long', breaks: ['types[]:string.max_len'], request: (valid) => ({ ...valid, types: [long(65)] }), fields: ['types'] },
      { what: 'a text that is too long', breaks: ['query:string.max_len'], request: (valid) => ({ ...valid, query: long(256) }), fields: ['query'] },
      { what: 'too many names', breaks: ['names:repeated.max_items'], request: (valid) => ({ ...valid, names: Array(101).fill('a') }), fields: ['names'] },
      { what: 'too many types', breaks: ['types:repeated.max_items'], request: (valid) => ({ ...valid, types: Array(101).fill('a') }), fields: ['types'] },
    ],
  },
  'ContentsService/ListPackageImages': {
    request: (): JsonObject => ({ purl: 'pkg:apk/alpine/musl@1.2.5-r0', pageSize: 10 }),
    outsider: { code: 0, body: { images: [], totalCount: '0', skipped: 0 } },
    badInputs: [
      ...badPages,
      { what: 'no package URL', breaks: ['purl:required'], request: (valid) => ({ ...valid, purl: '' }), fields: ['purl'] },
      { what: 'a package URL that is too long', breaks: ['purl:string.max_len'], request: (valid) => ({ ...valid, purl: long(2049) }), fields: ['purl'] },
      { what: 'a package URL that is none', request: (valid) => ({ ...valid, purl: 'musl' }), fields: ['purl'] },
    ],
  },
  'ContentsService/ListVulnerabilities': {
    request: image,
    badInputs: [
      ...badContents,
      { what: 'too many states', breaks: ['states:repeated.max_items'], request: (valid) => ({ ...valid, states: Array(11).fill(1) }), fields: ['states'] },
      { what: 'an unknown state', breaks: ['states[]:enum.defined_only'], request: (valid) => ({ ...valid, states: [99] }), fields: ['states'] },
      { what: 'the state 0', breaks: ['states[]:enum.not_in'], request: (valid) => ({ ...valid, states: [0] }), fields: ['states'] },
      ...badSeverities,
    ],
  },
}

/** VulnReportsService, but for counts, whose requests name images in another way. */
const reportCases: Readonly<Record<string, MethodCase>> = {
  'VulnReportsService/GetVulnReport': { request: image, badInputs: badDigest },
  'VulnReportsService/GetRawVulnReport': { request: image, badInputs: badDigest },
  'VulnReportsService/ListScannerReports': {
    request: image,
    badInputs: [
      ...badDigest,
      ...badPages,
      ...badSeverities,
      {
        what: 'too many reports',
        breaks: ['report_digests:repeated.max_items'],
        request: (valid) => ({ ...valid, reportDigests: Array(21).fill('a') }),
        fields: ['report_digests'],
      },
      {
        what: 'a digest that is too long',
        breaks: ['report_digests[]:string.max_len'],
        request: (valid) => ({ ...valid, reportDigests: [long(256)] }),
        fields: ['report_digests'],
      },
    ],
  },
  'VulnReportsService/ListVulnReports': {
    request: image,
    badInputs: [
      ...badDigest.filter(({ breaks = [] }) => !breaks.includes('digest:required')),
      { what: 'a tag that is none', breaks: ['tag:string.pattern'], request: (valid) => ({ ...valid, tag: 'a tag' }), fields: ['tag'] },
      { what: 'a tag that the repo does not have', request: ({ repoUid = '' }) => ({ repoUid, tag: 'none' }), code: 5 },
    ],
  },
}

/** EolTagsService. */
const eolCases: Readonly<Record<string, MethodCase>> = {
  'EolTagsService/ListEolTags': {
    request: async (world) => ({ repoUid: (await pushed(world)).repo }),
    badInputs: [
      { what: 'a name that is too long', breaks: ['name:string.max_len'], request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] },
      { what: 'a negative page size', breaks: ['page_size:int32.gte'], request: (valid) => ({ ...valid, pageSize: -1 }), fields: ['page_size'] },
      {
        what: 'a page token that is too long',
        breaks: ['page_token:string.max_len'],
        request: (valid) => ({ ...valid, pageToken: long(4097) }),
        fields: ['page_token'],
      },
      { what: 'a page token of another list', request: (valid) => ({ ...valid, pageToken: 'nonsense' }), fields: ['page_token'] },
      { what: 'a negative skip', breaks: ['skip:int32.gte'], request: (valid) => ({ ...valid, skip: -1 }), fields: ['skip'] },
    ],
  },
}

const badTagName: readonly BadInput[] = [
  { what: 'no tag', breaks: ['tag:required'], request: (valid) => ({ ...valid, tag: '' }), fields: ['tag'] },
  { what: 'a tag that is none', breaks: ['tag:string.pattern'], request: (valid) => ({ ...valid, tag: 'a tag' }), fields: ['tag'] },
]

/** TagHistoryService. */
const historyCases: Readonly<Record<string, MethodCase>> = {
  'TagHistoryService/ListTagHistory': {
    request: async (world) => ({ repoUid: (await pushed(world)).repo, tag: 'latest' }),
    badInputs: [
      ...badTagName,
      { what: 'a negative page size', breaks: ['page_size:int32.gte'], request: (valid) => ({ ...valid, pageSize: -1 }), fields: ['page_size'] },
      { what: 'a page token that is none', request: (valid) => ({ ...valid, pageToken: 'garbage' }), fields: ['page_token'] },
      {
        what: 'a page token that is too long',
        breaks: ['page_token:string.max_len'],
        request: (valid) => ({ ...valid, pageToken: long(4097) }),
        fields: ['page_token'],
      },
      { what: 'an end before the start', request: (valid) => ({ ...valid, start: '2026-01-02T00:00:00Z', end: '2026-01-01T00:00:00Z' }), fields: ['end'] },
      { what: 'an end at the start', request: (valid) => ({ ...valid, start: '2026-01-01T00:00:00Z', end: '2026-01-01T00:00:00Z' }), fields: ['end'] },
      { what: 'a start that is no time', only: 'rest', request: (valid) => ({ ...valid, start: 'yesterday' }), fields: ['start'] },
      { what: 'a tag that never was', request: (valid) => ({ ...valid, tag: 'never' }), code: 5 },
    ],
  },
  'TagHistoryService/RestoreTag': {
    request: async (world) => {
      const { repo, digests } = await pushed(world, { times: 2 })
      return { repoUid: repo, tag: 'latest', digest: digests[0] ?? '' }
    },
    badInputs: [
      ...badTagName,
      { what: 'a digest that is none', breaks: ['digest:string.pattern'], request: (valid) => ({ ...valid, digest: 'latest' }), fields: ['digest'] },
      { what: 'a digest that the tag never had', request: (valid) => ({ ...valid, digest: unheld }), code: 9 },
      { what: 'neither digest nor time', request: (valid) => ({ ...valid, digest: '' }), fields: ['digest'] },
      { what: 'both digest and time', request: (valid) => ({ ...valid, time: '2026-01-01T00:00:00Z' }), fields: ['digest'] },
      { what: 'a time before the tag', request: (valid) => ({ ...valid, digest: '', time: '2001-01-01T00:00:00Z' }), code: 9 },
    ],
  },
}

/** Tags, images, history. */
export const imagesCases: Readonly<Record<string, MethodCase>> = { ...tagCases, ...imageCases, ...contentsCases, ...reportCases, ...eolCases, ...historyCases }
