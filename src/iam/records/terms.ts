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
 * The kind TermsAcceptance (docs/spec/iam.md#terms): the group, document, person and time of an acceptance of terms. Its parent is the
 * group. Acceptances never change, are deleted with the group, and their uids are never shown.
 */
export const termsAcceptanceKind = defineKind<AcceptanceRecord>({
  index,
  desc: TermsAcceptanceSchema,
  uniqueName: false,
  listFilters: {
    fields: new Set(['group']),
    // A caller who can see the acceptances of a group also sees those of groups above it.
    read(request: Message) {
      const { group } = request as ListTermsAcceptancesRequest
      return {
        anyOf: { filter: 'parent', values: [...lineage(trustedUid(group))] },
        visibility: { everywhere: true, groups: [], roots: true },
      }
    },
  },
})

/** Returns the uid of the acceptance of a document by a group. It is derived from both, so that a group accepts each document once. */
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
 * AcceptTerms: records that a group accepts documents. Earlier acceptances stay. If the group has accepted all of them before, nothing is
 * written and there is no event. A subgroup may accept a document again that a group above has accepted.
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
      // a cast: the message lacks some fields of a resource; missing fields are not stored
      planChild(termsAcceptanceKind, planning, { changes, parent: group, uid: acceptanceUid(group, docId), record: record as TermsAcceptance & Resource })
    }
    if (missing.length > 0) emit(planning, context, { changes, subject: group, body: { desc: AcceptTermsResponseSchema, message: answer } })
    return { changes, result: undefined }
  })
  return { message: answer, subject: group }
}
