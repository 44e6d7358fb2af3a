import { keysWrittenSince, revisionOf } from '../../../support/store-changes.ts'
import { fromBinary } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { AcceptTermsResponseSchema } from '../../../../src/gen/taproot/iam/v2/terms_pb.ts'
import { makeMember, makeOrganisation } from '../../../support/test-server.ts'
import { eventsOf } from '../outbox.ts'
import { subgroup } from '../spec-kinds.ts'
import { expectFailure, itemsOf, specSuite } from '../spec-suite.ts'

const ids = Array.from({ length: 100 }, (_, at) => `document-${String(at).padStart(2, '0')}`)
const env = { TAPROOT_TERMS: JSON.stringify(ids.map((id) => ({ id, label: id, url: 'https://example.com' }))) }

specSuite(
  'terms',
  (spec) => {
    const accept = (group: string, documentIds: readonly string[], token: string) =>
      spec.call('AcceptTerms', { group, documentIds: [...documentIds] }, { token })
    const list = (group: string, token: string, request: object = {}) => spec.ok('ListTermsAcceptances', { group, ...request }, { token })
    const accepted = async (group: string, token: string): Promise<unknown[]> =>
      itemsOf(await list(group, token), 'termsAcceptances').map(({ docId, orgUid, acceptedBy }) => [docId, orgUid, acceptedBy])

    // docs/spec/iam.md#terms
    test('accepting terms records person and time for the group, and returns group and ids', async () => {
      const { group, owner, token } = await makeOrganisation(spec.server)
      const reply = await accept(group, ['document-01', 'document-00', 'document-01'], token)
      expect(reply.body).toEqual({ group, documentIds: ['document-01', 'document-00'] })
      expect(new Set(await accepted(group, token))).toEqual(
        new Set([
          ['document-00', group, owner],
          ['document-01', group, owner],
        ]),
      )
      const [first] = itemsOf(await list(group, token), 'termsAcceptances')
      expect(Object.keys(first ?? {}).toSorted()).toEqual(['acceptedBy', 'createTime', 'docId', 'orgUid'])
      expect(first?.['createTime']).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    })

    // docs/spec/iam.md#terms
    test('a second acceptance gets the same answer, keeps person and time, and causes no event', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const other = await makeMember(spec.server, group, { role: 'owner' })
      await accept(group, ['document-00'], token)
      const before = await list(group, token)
      const revision = await revisionOf(spec.server.running.engine.store)
      expect((await accept(group, ['document-00'], other.token)).body).toEqual({ group, documentIds: ['document-00'] })
      expect(await keysWrittenSince(spec.server.running.engine.store, revision)).toEqual([])
      expect(await list(group, token)).toEqual(before)
      await accept(group, ['document-00', 'document-01'], other.token)
      const events = (await eventsOf(spec, group)).filter(({ type }) => type === 'dev.taproot.api.iam.terms.accepted.v1')
      expect(events.map((event) => [event.group, fromBinary(AcceptTermsResponseSchema, event.body).documentIds])).toEqual([
        [group, ['document-00']],
        [group, ['document-00', 'document-01']],
      ])
    })

    // docs/spec/iam.md#terms
    test('of many concurrent acceptances one is recorded', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const replies = await Promise.all([1, 2, 3, 4, 5].map(() => accept(group, ['document-00'], token)))
      expect(replies.map(({ code }) => code)).toEqual([0, 0, 0, 0, 0])
      expect((await list(group, token))['totalCount']).toBe('1')
      expect((await eventsOf(spec, group)).filter(({ type }) => type.endsWith('terms.accepted.v1')).length).toBe(1)
    })

    // docs/spec/iam.md#terms
    test('a hundred documents are accepted in one request', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      expect((await accept(group, ids, token)).code).toBe(0)
      expect((await list(group, token))['totalCount']).toBe('100')
    })

    // docs/spec/iam.md#terms
    test('an empty list and an unknown document are code 3, and nothing is recorded', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      expectFailure(await accept(group, [], token), { code: 3, fields: ['document_ids'] })
      expectFailure(await accept(group, ['document-00', 'unknown'], token), { code: 3, fields: ['document_ids[1]'] })
      expect(await list(group, token)).toMatchObject({ termsAcceptances: [], totalCount: '0' })
    })

    // docs/spec/iam.md#terms
    test('a group shows the acceptances of groups above it, and may accept the terms itself; no other group does', async () => {
      const { group, owner, token } = await makeOrganisation(spec.server)
      const [child, sibling] = [await subgroup(spec, group, token), await subgroup(spec, group, token)]
      await accept(group, ['document-00'], token)
      await accept(sibling, ['document-01'], token)
      const member = await makeMember(spec.server, child, { role: 'viewer' })
      // The member has no reach at the group above: what is inherited is seen from below.
      expect(await accepted(child, member.token)).toEqual([['document-00', group, owner]])
      await accept(child, ['document-00'], token)
      expect(await accepted(child, member.token)).toEqual([
        ['document-00', group, owner],
        ['document-00', child, owner],
      ])
      expect(await accepted(group, token)).toEqual([['document-00', group, owner]])
    })

    // docs/spec/conventions.md#method-scopes
    test('only callers with access to the group list and accept terms; for others the group is missing', async () => {
      const [own, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
      const viewer = await makeMember(spec.server, own.group, { role: 'viewer' })
      expectFailure(await accept(own.group, ['document-00'], viewer.token), { code: 7 })
      expectFailure(await accept(own.group, ['document-00'], other.token), { code: 5 })
      expectFailure(await spec.call('ListTermsAcceptances', { group: own.group }, { token: other.token }), { code: 5 })
      const missing = `${own.group}/0000000000000000`
      expectFailure(await accept(missing, ['document-00'], own.token), { code: 5 })
      expectFailure(await spec.call('ListTermsAcceptances', { group: missing }, { token: own.token }), { code: 5 })
    })

    // docs/spec/conventions.md#page-tokens
    test('pages of acceptances are consistent, oldest first by default; a page token counts for its group only', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const child = await subgroup(spec, group, token)
      for (const id of ids.slice(0, 5)) {
        await accept(id === 'document-02' ? group : child, [id], token)
        spec.clock.advance(1)
      }
      const pages = async (orderBy: string): Promise<unknown[]> => {
        const found: unknown[] = []
        for (let pageToken = ''; ;) {
          const page = await list(child, token, { pageSize: 2, pageToken, orderBy })
          expect(page['totalCount']).toBe('5')
          found.push(...itemsOf(page, 'termsAcceptances').map(({ docId }) => docId))
          const { nextPageToken = '' } = page
          if (nextPageToken === '') return found
          pageToken = String(nextPageToken)
        }
      }
      expect(await pages('')).toEqual(ids.slice(0, 5))
      expect(await pages('created_at desc')).toEqual(ids.slice(0, 5).toReversed())
      expect(itemsOf(await list(child, token, { skip: 4 }), 'termsAcceptances')).toHaveLength(1)
      const { nextPageToken = '' } = await list(child, token, { pageSize: 2 })
      const elsewhere = await spec.call('ListTermsAcceptances', { group, pageSize: 2, pageToken: nextPageToken }, { token })
      expectFailure(elsewhere, { code: 3, fields: ['page_token'] })
      expectFailure(await spec.call('ListTermsAcceptances', { group, orderBy: 'name' }, { token }), { code: 3, fields: ['order_by'] })
    })

    // docs/spec/conventions.md#deletion-order
    test('acceptances are deleted with their group', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const child = await subgroup(spec, group, token)
      await accept(child, ['document-00'], token)
      await spec.ok('DeleteGroup', { uid: child }, { token })
      const { engine } = spec.server.running
      const left = async (): Promise<number> => {
        await engine.services.cascader.finish(AbortSignal.timeout(60_000))
        return (await engine.store.range({ prefix: `r/TermsAcceptance/${child}/`, limit: 10 }, AbortSignal.timeout(60_000))).entries.length
      }
      await expect.poll(left).toBe(0)
    })
  },
  { env },
)
