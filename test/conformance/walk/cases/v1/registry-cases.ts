import type { JsonObject } from '@bufbuild/protobuf'
import { importProduct } from '../../../../support/import-advisories.ts'
import { freshName } from '../../../../support/test-server.ts'
import { long } from '../../bad-fields.ts'
import { made, tokenWith, type World } from '../../world.ts'
import { newTag, pushed } from '../cases-images.ts'
import type { BadInput, MethodCase } from '../method-case.ts'
import { badResources } from './iam-cases.ts'

const badRepo = [
  { what: 'an empty name', set: { name: '' }, fields: ['name'] },
  { what: 'a tier whose number is unknown', set: { catalogTier: 99 }, fields: ['catalog_tier'] },
  { what: 'an unknown bundle', set: { bundles: ['unknown'] }, fields: ['bundles'] },
  { what: 'a source that is too long', set: { sync_config: { source: long(513) } }, fields: ['sync_config.source'] },
  {
    what: 'a certificate without a name',
    set: { customOverlay: { certificates: { additional: [{ content: 'x' }] } } },
    fields: ['custom_overlay.certificates.additional.name'],
  },
]

const products = new WeakMap<World, Promise<string>>()

/** Imports a product with a supported version 2 and a version 1 at its end, once for each server. */
async function aboutProduct(world: World): Promise<JsonObject> {
  const cycles = [
    { cycle: '1', releaseDate: '2000-01-01', eol: '2010-01-01', latest: '1.5' },
    { cycle: '2', releaseDate: '2099-01-01', eol: false, latest: '2.1' },
  ]
  const known = products.get(world) ?? importProduct(world.server, world.group, cycles)
  products.set(world, known)
  return { package: await known }
}

function newRepo(world: World, parent = world.group): Promise<string> {
  return made(world, 'CreateRepo', { parent, repo: { name: freshName('repo') } })
}

const charts: JsonObject[] = [{ source: 'https://charts.example', repo: 'oci://charts.example/app', chart: 'app' }]

const badCharts: readonly BadInput[] = [
  {
    what: 'a chart without a repository',
    breaks: ['charts.repo:required'],
    request: (valid) => ({ ...valid, charts: [{ chart: 'app' }] }),
    fields: ['charts.repo'],
  },
  ...['source', 'repo', 'chart'].map((name) => ({
    what: `a ${name} of a chart that is too long`,
    breaks: [`charts.${name}:string.max_len`],
    request: (valid: JsonObject) => ({ ...valid, charts: [{ repo: 'a', [name]: long(513) }] }),
    fields: [`charts.${name}`],
  })),
  {
    what: 'too many charts',
    breaks: ['charts:repeated.max_items'],
    request: (valid) => ({ ...valid, charts: Array.from({ length: 21 }, () => ({ repo: 'a' })) }),
    fields: ['charts'],
  },
]

async function deployedRepo(world: World): Promise<string> {
  const repo = await newRepo(world)
  await made(world, 'Registry/UpdateDeployment', { repoId: repo, charts })
  return repo
}

/** The deployments of version 1. */
const deploymentV1Cases: Readonly<Record<string, MethodCase>> = {
  'Registry/CreateDeployment': {
    request: async (world) => ({ parentId: await newRepo(world), charts }),
    badInputs: [
      { what: 'no charts', breaks: ['charts:required'], request: (valid) => ({ ...valid, charts: [] }), fields: ['charts'] },
      { what: 'a repo that has charts', request: async (_, world) => ({ parentId: await deployedRepo(world), charts }), code: 6 },
      ...badCharts,
    ],
  },
  'Registry/UpdateDeployment': { request: async (world) => ({ repoId: await deployedRepo(world), charts }), badInputs: badCharts },
  'Registry/GetDeployment': { request: async (world) => ({ repoId: await deployedRepo(world) }), badInputs: [] },
}

/** The repos of version 1. */
const repoV1Cases: Readonly<Record<string, MethodCase>> = {
  'Registry/CreateRepo': {
    request: (world) => ({ parentId: world.group, repo: { name: freshName('made') } }),
    badInputs: [
      { what: 'no repo at all', request: ({ parentId = '' }) => ({ parentId }), fields: ['name'] },
      {
        what: 'a name that another repo of the group has, and that must be free',
        request: async ({ parentId = '' }, world) => {
          const name = freshName('taken')
          await made(world, 'CreateRepo', { parent: world.group, repo: { name } })
          return { parentId, repo: { name }, preventExisting: true }
        },
        code: 6,
      },
      {
        what: 'a name that another repo of the group has, by a caller who may not change repos',
        request: async ({ parentId = '' }, world) => {
          const name = freshName('taken')
          await made(world, 'CreateRepo', { parent: world.group, repo: { name } })
          return { parentId, repo: { name } }
        },
        code: 7,
      },
      ...badResources(badRepo, 'repo'),
    ],
  },
  'Registry/UpdateRepo': {
    request: async (world) => ({ id: await newRepo(world), name: freshName('renamed'), description: 'changed' }),
    badInputs: badResources(badRepo),
  },
  'Registry/ListRepos': {
    request: (world) => ({ uidp: { descendantsOf: world.group } }),
    list: { item: newRepo, filters: (world) => [{ uidp: { childrenOf: world.group } }] },
    badInputs: [{ what: 'a name that is too long', request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] }],
  },
  'Registry/DeleteRepo': { request: async (world) => ({ id: await newRepo(world) }), badInputs: [] },
}

const badTag = [
  { what: 'a digest that is none', set: { digest: 'latest' }, fields: ['digest'] },
  { what: 'an unknown bundle', set: { bundles: ['unknown'] }, fields: ['bundles'] },
]

const unheld: BadInput = { what: 'a digest that the repo does not hold', request: (valid) => ({ ...valid, digest: `sha256:${'0'.repeat(64)}` }), code: 9 }

/** The tags of version 1. */
const tagV1Cases: Readonly<Record<string, MethodCase>> = {
  'Registry/CreateTag': {
    request: async (world) => {
      const { repo, digests } = await pushed(world)
      return { repoId: repo, tag: { name: 'stable', digest: digests[0] ?? '' } }
    },
    badInputs: [
      { what: 'no tag at all', request: ({ repoId = '' }) => ({ repoId }), fields: ['name'] },
      ...badResources([...badTag, { what: 'a name with a slash', set: { name: 'a/b' }, fields: ['name'] }], 'tag'),
    ],
  },
  'Registry/UpdateTag': {
    request: async (world): Promise<JsonObject> => ({ id: await newTag(world), deprecated: true }),
    badInputs: [{ what: 'another name', request: (valid) => ({ ...valid, name: 'other' }), fields: ['name'] }, unheld, ...badResources(badTag)],
  },
  'Registry/ListTags': {
    request: (world) => ({ uidp: { descendantsOf: world.group } }),
    list: { item: (world, parent) => pushed(world, { parent }), filters: (world) => [{ uidp: { descendantsOf: world.group }, excludeReferrers: true }] },
    badInputs: [{ what: 'a digest that is too long', request: (valid) => ({ ...valid, digest: long(256) }), fields: ['digest'] }],
  },
  'Registry/ListEolTags': {
    request: (world) => ({ uidp: { descendantsOf: world.group } }),
    list: { item: (world, parent) => pushed(world, { parent }), filters: (world) => [{ uidp: { descendantsOf: world.group }, excludeDates: true }] },
    badInputs: [
      { what: 'a name that is too long', breaks: ['name:string.max_len'], request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] },
      { what: 'a negative page size', breaks: ['page_size:int64.gte'], request: (valid) => ({ ...valid, pageSize: '-1' }), fields: ['page_size'] },
      {
        what: 'a page token that is too long',
        breaks: ['page_token:string.max_len'],
        request: (valid) => ({ ...valid, pageToken: long(4097) }),
        fields: ['page_token'],
      },
      { what: 'a page token of another list', request: (valid) => ({ ...valid, pageToken: 'nonsense' }), fields: ['page_token'] },
    ],
  },
  'Registry/DeleteTag': { request: async (world) => ({ id: await newTag(world) }), badInputs: [] },
}

async function imageRequest(world: World): Promise<JsonObject> {
  const { repo, digests } = await pushed(world)
  return { repoId: repo, digest: digests[0] ?? '' }
}

const badDigest: readonly BadInput[] = [
  { what: 'a digest that is none', request: (valid) => ({ ...valid, digest: 'latest' }), fields: ['digest'] },
  { what: 'a digest that the repo does not hold', request: (valid) => ({ ...valid, digest: `sha256:${'0'.repeat(64)}` }), code: 5 },
]
const otherArch: BadInput = { what: 'an architecture that the image is not of', request: (valid) => ({ ...valid, arch: 's390x' }), code: 5 }

/** The reads of version 1 about tags and images. */
const readV1Cases: Readonly<Record<string, MethodCase>> = {
  'Registry/GetArchs': { request: imageRequest, badInputs: badDigest },
  'Registry/GetPackageVersionMetadata': {
    request: aboutProduct,
    badInputs: [
      { what: 'no package', only: 'grpc', breaks: ['package:required'], request: () => ({}), fields: ['package'] },
      { what: 'a name that is too long', breaks: ['package:string.max_len'], request: () => ({ package: long(513) }), fields: ['package'] },
      { what: 'an unknown product', request: () => ({ package: 'no-such' }), code: 5 },
    ],
  },
  'Registry/GetImageConfig': {
    request: imageRequest,
    badInputs: [
      ...badDigest,
      otherArch,
      { what: 'no digest', only: 'grpc', breaks: ['digest:required'], request: (valid) => ({ ...valid, digest: '' }), fields: ['digest'] },
    ],
  },
  'Registry/GetVulnReport': { request: imageRequest, badInputs: badDigest },
  'Registry/GetRepoCountBySource': { request: async (world) => ({ id: await newRepo(world) }), badInputs: [] },
  'Registry/GetRepoTagsSummary': { request: async (world) => ({ repoId: (await pushed(world)).repo }), badInputs: [] },
  'Registry/GetSize': { request: imageRequest, badInputs: [...badDigest, otherArch] },
  'Registry/ListTagHistory': {
    request: async (world) => ({ parentId: await newTag(world) }),
    badInputs: [
      {
        what: 'an end before the start',
        request: (valid) => ({ ...valid, start: '2026-01-02T00:00:00.000Z', end: '2026-01-01T00:00:00.000Z' }),
        fields: ['end'],
      },
    ],
  },
}

const malformed: BadInput = { what: 'a digest that is none', breaks: ['digest:string.pattern'], request: () => ({ digest: 'latest' }), fields: ['digest'] }
const badTagName: BadInput = {
  what: 'a tag that is none',
  breaks: ['tag:string.pattern'],
  request: (valid) => ({ ...valid, tag: 'a tag' }),
  fields: ['tag'],
}

const countRequest = async (world: World): Promise<JsonObject> => {
  const { repo } = await pushed(world)
  return { repo, tag: 'latest', from: '2026-01-02T00:00:00.000Z', to: '2026-01-03T00:00:00.000Z' }
}

/** What the lists of counts by day refuse. */
const badCounts: readonly BadInput[] = [
  { what: 'no repo', request: ({ repo: _, ...valid }) => valid, fields: ['repo'] },
  { what: 'no first day', request: ({ from: _, ...valid }) => valid, fields: ['from'] },
  { what: 'no last day', request: ({ to: _, ...valid }) => valid, fields: ['to'] },
  { what: 'an end before the start', request: (valid) => ({ ...valid, to: '2026-01-01T00:00:00.000Z' }), fields: ['to'] },
  { what: 'a repo that is too long', breaks: ['repo:string.max_len'], request: (valid) => ({ ...valid, repo: long(513) }), fields: ['repo'] },
  badTagName,
  { what: 'a name that no repo has', request: (valid) => ({ ...valid, repo: freshName('none') }), code: 5 },
  {
    what: 'more than 100 references',
    only: 'grpc',
    breaks: ['references:repeated.max_items'],
    request: (valid) => ({ ...valid, references: Array.from({ length: 101 }, () => ({ repo: 'a' })) }),
    fields: ['references'],
  },
  {
    what: 'a reference to a repo that is too long',
    only: 'grpc',
    breaks: ['references.repo:string.max_len'],
    request: (valid) => ({ ...valid, references: [{ repo: long(513) }] }),
    fields: ['references.repo'],
  },
  {
    what: 'a reference to a tag that is none',
    only: 'grpc',
    breaks: ['references.tag:string.pattern'],
    request: (valid) => ({ ...valid, references: [{ repo: 'a', tag: '-' }] }),
    fields: ['references.tag'],
  },
  { what: 'a reference without a repo', only: 'grpc', request: (valid) => ({ ...valid, references: [{ tag: 'latest' }] }), fields: ['references.repo'] },
]

/** The reports of version 1 about vulnerabilities. */
const reportV1Cases: Readonly<Record<string, MethodCase>> = {
  'Vulnerabilities/GetRawVulnReport': {
    request: async (world) => ({ digest: (await pushed(world)).digests[0] ?? '' }),
    caller: (world) => tokenWith(world, ['vuln_report.list']),
    outsider: { code: 5 },
    badInputs: [
      malformed,
      { what: 'no digest', request: () => ({}), fields: ['digest'] },
      { what: 'a digest that no repo holds', request: () => ({ digest: `sha256:${'0'.repeat(64)}` }), code: 5 },
      { what: 'another scanner', request: (valid) => ({ ...valid, scanner: 'TRIVY' }), code: 5 },
      { what: 'a time at which there was no report', request: (valid) => ({ ...valid, createdAt: '2001-01-01T00:00:00.000Z' }), code: 5 },
    ],
  },
  'Vulnerabilities/ListVulnReports': {
    request: async (world) => ({ repoId: (await pushed(world)).repo }),
    badInputs: [
      malformed,
      badTagName,
      { what: 'neither repo nor digest', request: () => ({}), fields: ['repo_id', 'digest'] },
      { what: 'a repo that is too long', breaks: ['repo_id:string.max_len'], request: () => ({ repoId: long(513) }), fields: ['repo_id'] },
      { what: 'a tag that the repo does not have', request: (valid) => ({ ...valid, tag: 'none' }), code: 5 },
    ],
  },
  'Vulnerabilities/ListVulnCountReports': { request: countRequest, badInputs: badCounts },
  'Vulnerabilities/ListCumulativeVulnCountReports': { request: countRequest, badInputs: badCounts },
}

/** The methods of version 1 in the domain registry. */
export const registryV1Cases: Readonly<Record<string, MethodCase>> = { ...repoV1Cases, ...deploymentV1Cases, ...tagV1Cases, ...readV1Cases, ...reportV1Cases }
