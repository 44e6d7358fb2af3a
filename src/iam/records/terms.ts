import { createHash } from 'node:crypto'
import { create, type Message } from '@bufbuild/protobuf'
import { DomainError } from '../../base/errors.ts'
import { lineage, trustedUid, type Uid } from '../../base/uid.ts'
import {
  AcceptTermsResponseSchema,
  TermsAcceptanceSchema,
  type AcceptTermsRequest,
  type ListTermsAcceptancesRequest,
  type TermsAcceptance,
} from '../../gen/taproot/iam/v2/terms_pb.ts'
import type { KindIndex, Resource } from '../../cache/records/cached-record.ts'
import { recordKey } from '../../store/keys.ts'
import { ChangeSet } from '../../engine/change-set.ts'
import { commit, type MutationPlan } from '../../engine/commit.ts'
import { defineKind } from '../../engine/kind.ts'
import type { Handler, Services } from '../../engine/services.ts'
import { emit, planChild } from '../../engine/write.ts'

type AcceptanceRecord = TermsAcceptance & Resource

const index: KindIndex = {
  kind: 'TermsAcceptance',
  desc: TermsAcceptanceSchema,
  filters: {},
  removedWith: [{ kind: 'Group', filter: 'parent' }],
}

/**
 * Acceptances of terms (docs/spec/iam.md#terms): group, document, person and time. Their parent is the group. Their uids are never shown. They never change, and
 * are deleted with the group.
 */
export const termsAcceptanceKind = defineKind<AcceptanceRecord>({
  index,
  desc: TermsAcceptanceSchema,
  uniqueName: false,
  listFilters: {
    fields: new Set(['group']),
    // Callers who can see the acceptances of a group also see inherited ones.
    read(request: Message) {
      const { group } = request as ListTermsAcceptancesRequest
      return {
        anyOf: { filter: 'parent', values: [...lineage(trustedUid(group))] },
        visibility: { everywhere: true, groups: [], roots: true },
      }
    },
  },
})

/** Returns the uid of the acceptance of a document by a group. It is unique, so each document is accepted once. */
function acceptanceUid(group: Uid, docId: string): Uid {
  return trustedUid(`${group}/${createHash('sha256').update(docId).digest('hex').slice(0, 16)}`)
}

/** Returns the documents of a request, without duplicates. Throws code 3 for documents that are not configured. */
function documentsOf({ settings }: Services, { documentIds }: AcceptTermsRequest): string[] {
  const violations = documentIds.flatMap((id, at) =>
    settings.terms.has(id) ? [] : [{ field: `document_ids[${at}]`, description: 'is not a document of this installation' }],
  )
  if (violations.length > 0) throw DomainError.invalidFields(violations)
  return [...new Set(documentIds)]
}

/**
 * AcceptTerms: records the acceptance of documents for a group. Earlier acceptances stay. If all documents were accepted before, there is no write and no event.
 * Documents that a group above accepted can be accepted again.
 */
export const acceptTerms: Handler = async (services, context, message) => {
  const request = message as AcceptTermsRequest
  const group = trustedUid(request.group)
  const documents = documentsOf(services, request)
  const answer = create(AcceptTermsResponseSchema, { group, documentIds: documents })
  await commit(services, context, (planning): MutationPlan<undefined> => {
    const changes = new ChangeSet()
    changes.guard({ kind: 'exists', key: recordKey('Group', group) })
    const missing = documents.filter((docId) => planning.tables.get(index.kind, acceptanceUid(group, docId)) === undefined)
    for (const docId of missing) {
      const record = create(TermsAcceptanceSchema, { docId, acceptedBy: planning.caller.identity, orgUid: group })
      // The stored message has fewer fields than a resource. Missing fields are not stored.
      planChild(termsAcceptanceKind, planning, { changes, parent: group, uid: acceptanceUid(group, docId), record: record as TermsAcceptance & Resource })
    }
    if (missing.length > 0) emit(planning, context, { changes, subject: group, body: { desc: AcceptTermsResponseSchema, message: answer } })
    return { changes, result: undefined }
  })
  return { message: answer, subject: group }
}
