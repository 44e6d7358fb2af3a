import { create, fromBinary } from '@bufbuild/protobuf'
import { hashQuery, sealCursor } from '../base/page-token.ts'
import type { TaskTurn } from '../base/task-thread.ts'
import { compareTexts } from '../base/versions/version-order.ts'
import { vulnerabilityStates, type PackageVulnerability, type VulnerabilityState } from '../cache/lists/contents-source.ts'
import { openPage, pageLimit } from '../engine/read.ts'
import { callerOf, turnOf, type Handler, type Services } from '../engine/services.ts'
import { VulnerabilityMetadataSchema, type VulnerabilityMetadata } from '../gen/taproot/advisory/v2/advisory_pb.ts'
import {
  ListVulnerabilitiesResponseSchema,
  Vulnerability_State,
  VulnerabilitySchema,
  type ListVulnerabilitiesRequest,
  type Vulnerability,
} from '../gen/taproot/registry/v2/contents_pb.ts'
import { SeveritySchema } from '../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { severityLevel } from './counts/tag-state.ts'
import { findVulnerabilities } from './image-vulnerabilities.ts'
import { contentsMessage, namedImages, packageMessage } from './named-images.ts'

const states = {
  affected: Vulnerability_State.AFFECTED,
  under_investigation: Vulnerability_State.UNDER_INVESTIGATION,
  fixed: Vulnerability_State.FIXED,
  not_affected: Vulnerability_State.NOT_AFFECTED,
} as const satisfies Record<VulnerabilityState, Vulnerability_State>

const defaultStates: readonly VulnerabilityState[] = ['affected', 'under_investigation']

/** Returns the states that a request asks for. */
function statesOf({ states: wanted }: ListVulnerabilitiesRequest): readonly VulnerabilityState[] {
  return wanted.length === 0 ? defaultStates : vulnerabilityStates.filter((state) => wanted.includes(states[state]))
}

/** The place of a vulnerability in the order: its id, the package URL, and the digest of the image. */
function keyOf({ id, found }: PackageVulnerability): readonly [id: string, purl: string, digest: string] {
  return [id, found.purl, found.digest]
}

function comparePlaces(one: readonly string[], other: readonly string[]): number {
  for (const [at, text] of one.entries()) {
    const order = compareTexts(text, other[at] ?? '')
    if (order !== 0) return order
  }
  return 0
}

/** Resolves with what is known about vulnerabilities, by id. */
async function metadataOf(services: Services, ids: readonly string[], turn: TaskTurn): Promise<ReadonlyMap<string, VulnerabilityMetadata>> {
  const source = ids.length === 0 ? undefined : services.catalogue('vulnerabilities')
  const page = await source?.page({ ids, descending: false, after: undefined, skip: 0, limit: ids.length }, turn)
  return new Map(page?.vulnerabilities.map(({ id, body }) => [id, fromBinary(VulnerabilityMetadataSchema, body)]))
}

function messageOf(one: PackageVulnerability, metadata: VulnerabilityMetadata | undefined): Vulnerability {
  const { id, aliases, state, severities, found, fixedVersion, rule, advisory, author, note } = one
  const { epssScore, knownExploitedTime } = metadata ?? {}
  return create(VulnerabilitySchema, {
    ...{ id, aliases: [...aliases], state: states[state], severityLevel: severityLevel(one), fixedVersion, rule, advisoryUid: advisory, author, note },
    severities: severities.map((severity) => create(SeveritySchema, severity)),
    ...(epssScore === undefined ? {} : { epssScore }),
    knownExploited: knownExploitedTime !== undefined,
    package: packageMessage(found),
  })
}

/** Answers ListVulnerabilities: one page of the vulnerabilities of an image, or of the images of an index (docs/spec/registry.md#vulnerabilities-of-images). */
export const listVulnerabilities: Handler = async (services, context, message) => {
  const request = message as ListVulnerabilitiesRequest // the method's input
  const { digest, platform, severityLevels, skip } = request
  const { repo, wanted, read } = await namedImages(services, context, request)
  const asked = statesOf(request)
  const queryHash = hashQuery([context.method.rpc, repo, digest, platform, asked, severityLevels.toSorted(), callerOf(context).identity])
  const { key, restarted } = await openPage(services, context, { text: request.pageToken, queryHash })
  const turn = turnOf(context)
  const images = wanted.flatMap((image) => read.get(image.digest) ?? [])
  const found = (await findVulnerabilities(services, { images, states: asked }, turn)).filter(
    (one) => severityLevels.length === 0 || severityLevels.includes(severityLevel(one)),
  )
  const after = key?.map(String)
  const left = found.map((one) => ({ one, place: keyOf(one) })).filter(({ place }) => after === undefined || comparePlaces(place, after) > 0)
  const limit = pageLimit(request.pageSize)
  const sorted = left.sort((a, b) => comparePlaces(a.place, b.place)).slice(skip)
  const shown = sorted.slice(0, limit)
  const last = shown.at(-1)
  const metadata = await metadataOf(services, [...new Set(shown.map(({ one }) => one.id))], turn)
  const answer = create(ListVulnerabilitiesResponseSchema, {
    vulnerabilities: shown.map(({ one }) => messageOf(one, metadata.get(one.id))),
    nextPageToken:
      sorted.length > limit && last !== undefined
        ? sealCursor({ key: last.place, queryHash, issuedMs: services.clock.now() }, services.pageKeys.current(), services.random)
        : '',
    totalCount: BigInt(found.length),
    skipped: skip,
    images: wanted.map((image) => contentsMessage(image, read.get(image.digest))),
    hasAdvisories: services.catalogue('advisories') !== undefined,
  })
  return { message: answer, ...(restarted ? { pageTokenRestarted: true } : {}) }
}
