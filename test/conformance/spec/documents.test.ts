import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { importDocuments, osvDocument } from '../../support/import-advisories.ts'
import { freshName, makeMember, makeOrganisation, type Organisation } from '../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, uidOf, type Spec } from './spec-suite.ts'

const publicName = 'public-images'
const publicGroups = new WeakMap<object, Promise<Organisation>>()

/** The public organisation of a server. */
function publicOf({ server }: Spec): Promise<Organisation> {
  const known = publicGroups.get(server) ?? makeOrganisation(server, publicName)
  publicGroups.set(server, known)
  return known
}

const about = (name: string, fixed = '1.2.3'): JsonObject => ({
  package: { ecosystem: 'PyPI', name },
  ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed }] }],
})

const noToken: { readonly token?: string } = {}

async function shown(spec: Spec, request: JsonObject, options = noToken): Promise<unknown[]> {
  const documents = itemsOf(await spec.ok('ListDocuments', request, options), 'documents')
  return documents.map((document) => [document['id'], itemsOf(document, 'advisories').map(({ id }) => id)])
}

specSuite(
  'advisory documents',
  (spec) => {
    // docs/spec/advisories.md#advisory-documents
    test('everyone reads the documents of the public organisation, one for each origin package', async () => {
      const { group } = await publicOf(spec)
      const [one, two] = [freshName('one'), freshName('two')]
      const aliases = [`CVE-${one}`]
      await importDocuments(spec.server, group, [
        osvDocument(`B-${one}`, { affected: [about(one), about(two)] }),
        osvDocument(`A-${one}`, { aliases, affected: [about(one)] }),
      ])
      expect(await shown(spec, { cves: [`A-${one}`, `B-${one}`] })).toEqual(
        [
          [one, [`A-${one}`, `B-${one}`]],
          [two, [`B-${one}`]],
        ].sort(),
      )
      expect(await spec.ok('ListDocuments', { id: one, cves: [`CVE-${one}`, 'CVE-1'] }, noToken)).toEqual({
        documents: [
          {
            id: one,
            advisories: [
              {
                id: `A-${one}`,
                aliases,
                packageNamespace: 'PyPI',
                events: [
                  { timestamp: '2026-01-02T03:04:05.678Z', detection: { manual: {} } },
                  { timestamp: '2026-02-03T04:05:06.000Z', fixed: expect.objectContaining({ fixedVersion: '1.2.3' }) as unknown },
                ],
              },
            ],
          },
        ],
      })
    })

    test('a caller also reads the documents of groups where advisories are listed, but none of another tenant', async () => {
      const open = await publicOf(spec)
      const own = await makeOrganisation(spec.server)
      const other = await makeOrganisation(spec.server)
      const team = uidOf(await spec.ok('CreateGroup', { parent: own.group, group: { name: 'team' } }, { token: own.token }))
      const name = freshName('pkg')
      const ids = ['P', 'O', 'T', 'X'].map((letter) => `${letter}-${name}`)
      const [inPublic = '', inOwn = '', inTeam = '', inOther = ''] = ids
      for (const [group, id] of [
        [open.group, inPublic],
        [own.group, inOwn],
        [team, inTeam],
        [other.group, inOther],
      ] as const)
        await importDocuments(spec.server, group, [osvDocument(id, { affected: [about(name)] })])
      const member = await makeMember(spec.server, own.group, { role: 'viewer', bindAt: team })
      const stranger = await makeMember(spec.server, own.group)
      for (const request of [{ id: name }, { cves: ids }, { id: name, cves: ids }]) {
        expect(await shown(spec, request)).toEqual([[name, [inPublic]]])
        expect(await shown(spec, request, { token: 'garbage' })).toEqual([[name, [inPublic]]])
        expect(await shown(spec, request, { token: stranger.token })).toEqual([[name, [inPublic]]])
        expect(await shown(spec, request, { token: member.token })).toEqual([[name, [inPublic, inTeam]]])
        expect(await shown(spec, request, { token: own.token })).toEqual([[name, [inOwn, inPublic, inTeam]]])
        expect(await shown(spec, request, { token: other.token })).toEqual([[name, [inPublic, inOther]]])
      }
      await spec.ok('DeleteIdentity', { uid: member.uid }, { token: own.token })
      expect(await shown(spec, { id: name }, { token: member.token })).toEqual([[name, [inPublic]]])
      await spec.ok('DeleteGroup', { uid: team }, { token: own.token })
      expect(await shown(spec, { id: name }, { token: own.token })).toEqual([[name, [inOwn, inPublic]]])
    })

    test('documents of a suspended organisation are hidden', async () => {
      const { group } = await publicOf(spec)
      const name = freshName('pkg')
      await importDocuments(spec.server, group, [osvDocument(`A-${name}`, { affected: [about(name)] })])
      const token = await spec.server.operatorToken()
      await spec.ok('SuspendGroup', { uid: group }, { token })
      expect(await shown(spec, { id: name })).toEqual([])
      await spec.ok('ResumeGroup', { uid: group }, { token })
      expect(await shown(spec, { id: name })).toEqual([[name, [`A-${name}`]]])
    })

    test('a withdrawn advisory is in no document', async () => {
      const { group } = await publicOf(spec)
      const name = freshName('pkg')
      const affected = [about(name)]
      await importDocuments(spec.server, group, [
        osvDocument(`A-${name}`, { affected }),
        osvDocument(`B-${name}`, { affected, withdrawn: '2026-04-01T00:00:00Z' }),
      ])
      expect(await shown(spec, { id: name })).toEqual([[name, [`A-${name}`]]])
    })

    test('an answer that is too large is refused with what to do', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const name = freshName('pkg')
      const documents = Array.from({ length: 1_001 }, (_, at) => osvDocument(`${name}-${String(at)}`, { affected: [about(name)] }))
      await importDocuments(spec.server, group, documents)
      for (const request of [{}, { id: name }]) {
        const reply = await spec.call('ListDocuments', request, { token })
        expectFailure(reply, { code: 9, domain: 'advisory.taproot.dev', reason: 'ANSWER_TOO_LARGE', violations: ['ANSWER_TOO_LARGE'] })
      }
      expect(await shown(spec, { id: name, cves: [`${name}-7`] }, { token })).toEqual([[name, [`${name}-7`]]])
    })
  },
  { env: { TAPROOT_REGISTRY_PUBLIC_ORGANIZATION: publicName } },
)
