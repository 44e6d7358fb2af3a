import type { JsonObject } from '@bufbuild/protobuf'
import { importDocuments, pypiDocument } from '../../../support/import-advisories.ts'
import { long } from '../bad-fields.ts'
import type { World } from '../world.ts'
import type { BadInput, MethodCase } from './method-case.ts'

const imported = new WeakMap<World, Promise<unknown>>()
/** The name of that artifact. */
export const walkedLibrary = 'walked-library'

/** Imports an artifact, once for each server. Reads change nothing, so all requests share it. */
export async function withArtifact(world: World, request: JsonObject): Promise<JsonObject> {
  const known = imported.get(world) ?? importDocuments(world.server, world.group, [pypiDocument(walkedLibrary, ['1.0', '1.1'])])
  imported.set(world, known)
  await known
  return request
}

const ecosystems: readonly BadInput[] = [
  { what: 'no ecosystem', breaks: ['ecosystems:required'], request: (valid) => ({ ...valid, ecosystems: [] }), fields: ['ecosystems'] },
  { what: 'an unspecified ecosystem', breaks: ['ecosystems[]:enum.not_in'], request: (valid) => ({ ...valid, ecosystems: [0] }), fields: ['ecosystems'] },
  { what: 'an unknown ecosystem', breaks: ['ecosystems[]:enum.defined_only'], request: (valid) => ({ ...valid, ecosystems: [3] }), fields: ['ecosystems'] },
  {
    what: 'more than 10 ecosystems',
    breaks: ['ecosystems:repeated.max_items'],
    request: (valid) => ({ ...valid, ecosystems: Array.from({ length: 11 }, () => 1) }),
    fields: ['ecosystems'],
  },
]

/** ArtifactsService. */
export const libraryCases: Readonly<Record<string, MethodCase>> = {
  'ArtifactsService/ListArtifacts': {
    request: (world) => withArtifact(world, { ecosystems: ['ECOSYSTEM_PYTHON', 'ECOSYSTEM_JAVA'], query: walkedLibrary, orderBy: 'updated_at desc' }),
    badInputs: [
      ...ecosystems,
      { what: 'a query that is too long', breaks: ['query:string.max_len'], request: (valid) => ({ ...valid, query: long(256) }), fields: ['query'] },
      {
        what: 'a CUDA version that is too long',
        breaks: ['cuda_version:string.max_len'],
        request: (valid) => ({ ...valid, cudaVersion: long(256) }),
        fields: ['cuda_version'],
      },
      { what: 'remediated that is neither true nor false', only: 'rest', request: (valid) => ({ ...valid, remediated: 'maybe' }), fields: ['remediated'] },
    ],
  },
  'ArtifactsService/ListArtifactVersions': {
    request: (world) => withArtifact(world, { artifactId: `python:${walkedLibrary}` }),
    badInputs: [
      { what: 'no artifact', only: 'grpc', breaks: ['artifact_id:required'], request: (valid) => ({ ...valid, artifactId: '' }), fields: ['artifact_id'] },
      {
        what: 'the uid of an artifact that is too long',
        breaks: ['artifact_id:string.max_len'],
        request: (valid) => ({ ...valid, artifactId: long(1025) }),
        fields: ['artifact_id'],
      },
      { what: 'an artifact that does not exist', request: (valid) => ({ ...valid, artifactId: 'npm:@no/such' }), code: 5 },
    ],
  },
  'ArtifactsService/GetArtifactCount': { request: (world) => withArtifact(world, { ecosystems: ['ECOSYSTEM_PYTHON'] }), badInputs: ecosystems },
}
