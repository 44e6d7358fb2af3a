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
 * Acceptances of terms (docs/spec/iam.md#terms): which group accepted which document, who did, and when. They lie below the group, under uids that are never shown, are never
 * changed, and go with the group.
 */
export const termsAcceptanceKind = defineKind<AcceptanceRecord>({
  index,
  desc: TermsAcceptanceSchema,
  uniqueName: false,
  listFilters: {
    fields: new Set(['group']),
    // Whoever may see what a group accepted sees what it inherits.
    read(request: Message) {
      const { group } = request as ListTermsAcceptancesRequest
      return {
        anyOf: { filter: 'parent', values: [...lineage(trustedUid(group))] },
        visibility: { everywhere: true, groups: [], roots: true },
      }
    },
  },
})

/** Where a group's acceptance of a document lies: so it accepts each once. */
function acceptanceUid(group: Uid, docId: string): Uid {
  return trustedUid(`${group}/${createHash('sha256').update(docId).digest('hex').slice(0, 16)}`)
}

/** The documents that a request names, each once. Throws code 3 for those that the configuration does not have. */
function documentsOf({ settings }: Services, { documentIds }: AcceptTermsRequest): string[] {
  const violations = documentIds.flatMap((id, at) =>
    settings.terms.has(id) ? [] : [{ field: `document_ids[${at}]`, description: 'is not a document of this installation' }],
  )
  if (violations.length > 0) throw DomainError.invalidFields(violations)
  return [...new Set(documentIds)]
}

/**
 * AcceptTerms: records who accepted the documents for the group, and when. What the group has accepted before stays as it is; where that is all of it, nothing is written
 * and no event tells of it. What a group above has accepted may be accepted here too.
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
      // The record's own message has fewer fields than a resource; those that it lacks are not stored.
      planChild(termsAcceptanceKind, planning, { changes, parent: group, uid: acceptanceUid(group, docId), record: record as TermsAcceptance & Resource })
    }
    if (missing.length > 0) emit(planning, context, { changes, subject: group, body: { desc: AcceptTermsResponseSchema, message: answer } })
    return { changes, result: undefined }
  })
  return { message: answer, subject: group }
}
