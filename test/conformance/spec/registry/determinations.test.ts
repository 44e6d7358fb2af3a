import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { makeImageWorld, pushPackages, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { importDocuments, osvDocument } from '../../../support/import-advisories.ts'
import { freshName, makeOrganisation, type Organisation } from '../../../support/test-server.ts'
import { itemsOf, specSuite, uidOf, type Spec } from '../spec-suite.ts'

const dayMs = 24 * 3_600_000
const publicName = 'shared'
const env = { TAPROOT_REGISTRY_READ_CONTENTS: 'true', TAPROOT_REGISTRY_PUBLIC_ORGANIZATION: publicName }
const suite = (title: string, body: (spec: Spec) => void): void => specSuite(title, body, { env })

// docs/spec/registry.md#vulnerabilities-over-time
suite('counts after a determination', (spec) => {
  const countedIds = async (world: ImageWorld): Promise<unknown> => {
    const time = new Date(spec.clock.now()).toISOString()
    const request = { imageRefs: [{ repo: world.repo, tags: ['latest'] }], startTime: time, endTime: time }
    const answer = await spec.ok('ListVulnCountReports', request, { token: await spec.server.tokenFor(world.owner) })
    const counts = itemsOf(answer, 'vulnCountReports').at(-1)?.['vulnCounts'] as { ids: string[] }[] | undefined
    return counts?.flatMap(({ ids }) => ids)
  }
  /** Resolves once these ids are counted. */
  const counted = async (world: ImageWorld, ids: readonly string[]): Promise<void> => {
    await expect
      .poll(async () => {
        // The worker looks for changes every two seconds.
        spec.clock.advance(2_000)
        return countedIds(world)
      })
      .toEqual(ids)
  }
  /** A repo in a group below an organisation, with a tag whose image has a vulnerability. */
  const vulnerable = async (): Promise<{ world: ImageWorld; id: string }> => {
    // At noon, so that no new day begins.
    spec.clock.advance(dayMs - (spec.clock.now() % dayMs) + dayMs / 2)
    const made = await makeImageWorld(spec.server)
    const group = uidOf(await spec.ok('CreateGroup', { parent: made.group, group: { name: 'team' } }, { token: await spec.server.tokenFor(made.owner) }))
    const token = await spec.server.tokenFor(made.owner)
    const repo = uidOf(await spec.ok('CreateRepo', { parent: group, repo: { name: 'app' } }, { token }))
    const world = { ...made, repo, path: made.path.replace(/\/app$/, '/team/app') }
    const id = freshName('CVE-2026').toUpperCase()
    const affected = [{ package: { ecosystem: 'Alpine:v3.20', name: 'musl' }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '2' }] }] }]
    await importDocuments(spec.server, world.group, [osvDocument(id, { affected })])
    await pushPackages(world, 'latest', { musl: '1' })
    await counted(world, [id])
    return { world, id }
  }
  const determine = async ({ group, owner }: Pick<Organisation, 'group' | 'owner'>, id: string, event: JsonObject): Promise<string> => {
    const advisory = { advisoryId: id, artifactName: 'musl', artifactType: 'Alpine:v3.20', events: [{ status: 'APPROVED', ...event }] }
    return String((await spec.ok('Advisories/Create', { parentId: group, advisory }, { token: await spec.server.tokenFor(owner) }))['id'])
  }
  const falsePositive = { falsePositiveDetermination: { note: 'not called' } }

  test('a determination in a group above a repo counts soon, and so does its deletion', async () => {
    const { world, id } = await vulnerable()
    const token = await spec.server.tokenFor(world.owner)
    const made = await determine(world, id, falsePositive)
    await counted(world, [])
    await spec.ok('Advisories/Delete', { id: made }, { token })
    await counted(world, [id])
    await determine({ ...world, group: world.repo.slice(0, world.repo.lastIndexOf('/')) }, id, falsePositive)
    await counted(world, [])
  })

  test('a determination of the public organisation counts soon in others', async () => {
    const { world, id } = await vulnerable()
    const { tables } = spec.server.running.engine.cache
    const known = tables.table('Group').child('/', publicName)
    const { group, owner } = known === undefined ? await makeOrganisation(spec.server, publicName) : { group: known.uid, owner: '' }
    await determine({ group, owner }, id, falsePositive)
    await counted(world, [])
  })

  test('many determinations are joined, and the tags of others are looked at meanwhile', async () => {
    const [{ world, id }, other] = [await vulnerable(), await vulnerable()]
    let made = await determine(world, id, falsePositive)
    const token = await spec.server.tokenFor(world.owner)
    for (let write = 0; write < 20; write += 1) {
      await spec.ok('Advisories/Delete', { id: made }, { token })
      made = await determine(world, id, falsePositive)
    }
    await determine(other.world, other.id, falsePositive)
    await Promise.all([counted(world, []), counted(other.world, [])])
  })
})
