import { create } from '@bufbuild/protobuf'
import { hashQuery, sealCursor } from '../base/page-token.ts'
import { vulnerabilityStates, type VulnerabilityState } from '../cache/lists/contents-source.ts'
import { openPage, pageLimit } from '../engine/read.ts'
import { callerOf, turnOf, type Handler } from '../engine/services.ts'
import { ListVulnerabilitiesResponseSchema, type ListVulnerabilitiesRequest } from '../gen/taproot/registry/v2/contents_pb.ts'
import { severityLevel } from './counts/tag-state.ts'
import { findVulnerabilities } from './image-vulnerabilities.ts'
import { contentsMessage, namedImages } from './named-images.ts'
import { comparePlaces, metadataOf, placeOf, stateNumbers, vulnerabilityMessage } from './vulnerability-message.ts'

const defaultStates: readonly VulnerabilityState[] = ['affected', 'under_investigation']

/** Returns the states that a request asks for. */
function statesOf({ states: wanted }: ListVulnerabilitiesRequest): readonly VulnerabilityState[] {
  return wanted.length === 0 ? defaultStates : vulnerabilityStates.filter((state) => wanted.includes(stateNumbers[state]))
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
  const found = (await findVulnerabilities(services, { images, index: digest, states: asked }, turn)).filter(
    (one) => severityLevels.length === 0 || severityLevels.includes(severityLevel(one)),
  )
  const after = key?.map(String)
  const left = found.map((one) => ({ one, place: placeOf(one) })).filter(({ place }) => after === undefined || comparePlaces(place, after) > 0)
  const limit = pageLimit(request.pageSize)
  const sorted = left.sort((a, b) => comparePlaces(a.place, b.place)).slice(skip)
  const shown = sorted.slice(0, limit)
  const last = shown.at(-1)
  const metadata = await metadataOf(services, [...new Set(shown.map(({ one }) => one.id))], turn)
  const answer = create(ListVulnerabilitiesResponseSchema, {
    vulnerabilities: shown.map(({ one }) => vulnerabilityMessage(one, metadata.get(one.id))),
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
