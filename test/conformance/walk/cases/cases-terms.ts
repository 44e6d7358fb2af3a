import type { JsonObject } from '@bufbuild/protobuf'
import { long } from '../bad-fields.ts'
import type { MethodCase } from './method-case.ts'
import { walkTerms } from '../world.ts'

function withDocuments(documentIds: readonly string[]): (valid: JsonObject) => JsonObject {
  return (valid) => ({ ...valid, documentIds: [...documentIds] })
}

/** TermsService. */
export const termsCases: Readonly<Record<string, MethodCase>> = {
  'TermsService/AcceptTerms': {
    request: (world): JsonObject => ({ group: world.group, documentIds: walkTerms.map(({ id }) => id) }),
    badInputs: [
      { what: 'no document', breaks: ['document_ids:required'], request: withDocuments([]), fields: ['document_ids'] },
      {
        what: 'more documents than 100',
        breaks: ['document_ids:repeated.max_items'],
        request: withDocuments(Array.from({ length: 101 }, () => 'walk-terms')),
        fields: ['document_ids'],
      },
      { what: 'an empty document', breaks: ['document_ids[]:string.min_len'], request: withDocuments(['']), fields: ['document_ids'] },
      { what: 'a document with too long an id', breaks: ['document_ids[]:string.max_len'], request: withDocuments([long(256)]), fields: ['document_ids'] },
      { what: 'an unknown document after a known one', request: withDocuments(['walk-terms', 'unknown']), fields: ['document_ids'] },
      { what: 'a text for the list of documents', only: 'rest', request: (valid) => ({ ...valid, documentIds: 'walk-terms' }), fields: ['document_ids'] },
    ],
  },
  'TermsService/ListTermsAcceptances': { request: (world) => ({ group: world.group, orderBy: 'created_at desc', pageSize: 200 }), badInputs: [] },
}
