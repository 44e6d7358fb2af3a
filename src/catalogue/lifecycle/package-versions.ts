import { create, type MessageInitShape } from '@bufbuild/protobuf'
import { notFound } from '../../engine/errors.ts'
import { turnOf, type Handler } from '../../engine/services.ts'
import {
  PackageVersionMetadataSchema,
  PackageVersionSchema,
  type GetPackageVersionMetadataRequest,
  type PackageVersion,
} from '../../gen/taproot/registry/v1/registry_pb.ts'
import { dayOf, hasCome, type LifecycleCycle } from '../../cache/lists/lifecycle-source.ts'
import { assertCatalogueReader } from '../catalogue-reader.ts'

function packageVersion(cycle: LifecycleCycle, rest: MessageInitShape<typeof PackageVersionSchema>): PackageVersion {
  const { releaseDay = '', latest, isLts } = cycle
  return create(PackageVersionSchema, { version: cycle.cycle, releaseDate: releaseDay, latestVersion: latest, lts: isLts, ...rest })
}

/** Answers GetPackageVersionMetadata of version 1 (docs/spec/version-1.md#versions-of-products). Code 5 for a product that the catalogue does not know. */
export const getPackageVersionMetadata: Handler = async (services, context, message) => {
  const { package: name } = message as GetPackageVersionMetadataRequest // the method's input
  await assertCatalogueReader(services, context)
  const found = await services.catalogue('lifecycle')?.productNamed(name, turnOf(context))
  if (found === undefined) throw notFound('Package', name, { resourceType: 'registry.taproot.dev/Package' })
  const today = new Date(services.clock.now()).toISOString().slice(0, 10)
  const ended = found.cycles.filter(({ lifeEnd }) => hasCome(lifeEnd, today) === true && dayOf(lifeEnd) !== '')
  const others = found.cycles.filter((cycle) => !ended.includes(cycle))
  const versions = others.map((cycle) => packageVersion(cycle, { eolDate: dayOf(cycle.lifeEnd), exists: hasCome(cycle.lifeEnd, today) === false }))
  const answer = create(PackageVersionMetadataSchema, {
    eolVersions: ended.map((cycle) => packageVersion(cycle, { eolDate: dayOf(cycle.lifeEnd), exists: true })),
    lastUpdatedTimestamp: new Date(found.importedMs).toISOString(),
    latestVersion: versions.find(({ exists }) => exists)?.version ?? '',
    versions,
  })
  return { message: answer }
}
