import * as v1 from '../gen/taproot/libraries/v1/artifacts_pb.ts'
import * as v2 from '../gen/taproot/libraries/v2/artifacts_pb.ts'
import { defineMap, unmapped, type FieldConverter } from './field-map.ts'

/** The ecosystems, whose numbers differ. */
const ecosystems: readonly (readonly [v1: v1.Ecosystem, v2: v2.Ecosystem])[] = [
  [v1.Ecosystem.UNKNOWN, v2.Ecosystem.UNSPECIFIED],
  [v1.Ecosystem.JAVA, v2.Ecosystem.JAVA],
  [v1.Ecosystem.PYTHON, v2.Ecosystem.PYTHON],
  [v1.Ecosystem.JAVASCRIPT, v2.Ecosystem.NPM],
]

/** A number that no ecosystem of version 2 has, so that its constraint refuses it. */
const unknownEcosystem = -1

const ecosystem: FieldConverter = {
  toV1: (value) => ecosystems.find(([, known]) => known === value)?.[0] ?? v1.Ecosystem.UNKNOWN,
  toV2: (value) => ecosystems.find(([known]) => known === value)?.[1] ?? unknownEcosystem,
}

/** Converts a number of 32 bits to one of 64 bits. */
const longer: FieldConverter = { toV1: (number) => Number(number), toV2: (number) => BigInt(Number(number)) }

const artifact = defineMap(v1.ArtifactSchema, v2.ArtifactSchema, {
  id: 'uid',
  name: 'name',
  description: 'description',
  ecosystem: { to: 'ecosystem', by: ecosystem },
  latest_version: 'latest_version',
  version_count: 'version_count',
  created_at: 'create_time',
  updated_at: 'update_time',
})

/** A list of artifacts. */
export const artifactListMaps = {
  request: defineMap(v1.ListArtifactsRequestSchema, v2.ListArtifactsRequestSchema, {
    ecosystems: { to: 'ecosystems', by: ecosystem },
    query: 'query',
    cuda_version: 'cuda_version',
    remediated: 'remediated',
    include_upstream: unmapped,
    page_size: 'page_size',
    page_token: 'page_token',
    skip: 'skip',
  }),
  answer: defineMap(v1.ArtifactListSchema, v2.ListArtifactsResponseSchema, {
    items: { to: 'artifacts', by: artifact },
    next_page_token: 'next_page_token',
    total_artifacts: { to: 'total_count', by: longer },
    skipped: 'skipped',
  }),
}

/** A version of an artifact. */
export const versionMap = defineMap(v1.ArtifactVersionSchema, v2.ArtifactVersionSchema, {
  id: 'uid',
  name: 'name',
  version: 'version',
  description: 'description',
  created_at: 'create_time',
  updated_at: 'update_time',
  size_bytes: 'size_bytes',
  source_type: unmapped,
  malware_scanned: unmapped,
  malware_malicious: unmapped,
  upstream_published_date: unmapped,
})

/** The request for the versions of an artifact. */
export const versionFilters = defineMap(v1.ListArtifactVersionsRequestSchema, v2.ListArtifactVersionsRequestSchema, {
  id: 'artifact_id',
  include_upstream: unmapped,
})

const count = defineMap(v1.GetArtifactCountResponse_EcosystemCountSchema, v2.GetArtifactCountResponse_EcosystemCountSchema, {
  ecosystem: { to: 'ecosystem', by: ecosystem },
  total_artifacts: { to: 'total_count', by: longer },
})

/** The numbers of artifacts. */
export const artifactCountMaps = {
  request: defineMap(v1.GetArtifactCountRequestSchema, v2.GetArtifactCountRequestSchema, { ecosystems: { to: 'ecosystems', by: ecosystem } }),
  answer: defineMap(v1.GetArtifactCountResponseSchema, v2.GetArtifactCountResponseSchema, { counts: { to: 'counts', by: count } }),
}
