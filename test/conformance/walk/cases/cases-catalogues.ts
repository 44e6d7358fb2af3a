import type { JsonObject } from '@bufbuild/protobuf'
import { ok } from '../../../support/test-server.ts'
import { long } from '../bad-fields.ts'
import type { World } from '../world.ts'
import { withArtifact } from './cases-libraries.ts'
import type { BadInput, MethodCase } from './method-case.ts'

const operator = ({ server }: World): Promise<string> => server.operatorToken()
const refused = { code: 7 } as const

/** Returns a request about the current catalogue of libraries. No other import changes it, so that its use goes back to nothing. */
async function currentCatalogue(world: World): Promise<JsonObject> {
  await withArtifact(world, {})
  const { catalogues } = ok(await world.server.rest.call('ListCatalogues', {}, { token: await operator(world) }))
  const current = (catalogues as JsonObject[]).find((one) => one['kind'] === 'libraries' && one['current'] === true) // an answer with catalogues
  return { digest: String(current?.['digest']) }
}

function ofOperators(request: MethodCase['request'], badInputs: readonly BadInput[] = []): MethodCase {
  return { request, caller: operator, outsider: refused, badInputs }
}

/** CataloguesService. */
export const catalogueCases: Readonly<Record<string, MethodCase>> = {
  'CataloguesService/ListCatalogues': ofOperators(() => ({})),
  'CataloguesService/UseCatalogue': ofOperators(currentCatalogue, [
    { what: 'no digest', only: 'grpc', breaks: ['digest:required'], request: () => ({}), fields: ['digest'] },
    { what: 'too long a digest', breaks: ['digest:string.max_len'], request: () => ({ digest: long(101) }), fields: ['digest'] },
    { what: 'a catalogue that is not kept', request: () => ({ digest: `sha256:${'0'.repeat(64)}` }), code: 5 },
  ]),
  'CataloguesService/PruneCatalogues': ofOperators(() => ({})),
  'CataloguesService/ListFeeds': ofOperators(() => ({})),
  'CataloguesService/RunFeed': ofOperators(
    () => ({ name: 'walk' }),
    [
      { what: 'no name', only: 'grpc', breaks: ['name:required'], request: () => ({}), fields: ['name'] },
      { what: 'too long a name', breaks: ['name:string.max_len'], request: () => ({ name: long(101) }), fields: ['name'] },
      { what: 'a feed that is not configured', request: () => ({ name: 'none' }), code: 5 },
    ],
  ),
}
