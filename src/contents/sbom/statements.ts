import { type Digest, hexOf, algorithmOf } from '../../base/digest.ts'
import { ContentError } from '../package.ts'
import { isObject, objectOf, objectOfBytes, objectOfText, objectsAt, shown, textIn, type SbomObject } from './json.ts'

const statementTypes: ReadonlySet<unknown> = new Set(['https://in-toto.io/Statement/v0.1', 'https://in-toto.io/Statement/v1'])
const statementPayload = 'application/vnd.in-toto+json'
const bundleStart = 'application/vnd.dev.sigstore.bundle'
/** The versions 0.1 to 0.3 of bundles. Their envelopes have the same form. */
const bundleTypes = /^application\/vnd\.dev\.sigstore\.bundle(?:\+json;version=0\.[123]|\.v0\.3\+json)$/
/** The predicates that are SBOMs. A version may follow, for example `https://cyclonedx.org/bom/v1.6`. */
export const sbomPredicates = /^https:\/\/(?:spdx\.dev\/Document|cyclonedx\.org\/bom|syft\.dev\/bom)(?:\/[\w.]+)?$/

/** The statements that are read. */
interface WantedStatement {
  /** One of them must be a subject. */
  readonly digests: readonly Digest[]
  /** True if a statement outside an envelope may have an empty list of subjects. The manifest that it is in says what it is about. */
  readonly mayLackSubject?: boolean
  /** The types of predicates. */
  readonly predicates: RegExp
  /** Called once a statement has one of the predicates. */
  readonly recognised?: () => void
}

function isBundle({ mediaType }: SbomObject): boolean {
  return typeof mediaType === 'string' && mediaType.startsWith(bundleStart)
}

/** Returns the DSSE envelope in a bundle of sigstore. */
function envelopeOfBundle({ mediaType, dsseEnvelope }: SbomObject): SbomObject {
  if (!bundleTypes.test(textIn(mediaType))) throw new ContentError('UNSUPPORTED_FORM', 'the sigstore bundle has a version that is not read: 0.1 to 0.3 are')
  if (dsseEnvelope === undefined) throw new ContentError('UNSUPPORTED_FORM', 'the sigstore bundle has no statement')
  return objectOf(dsseEnvelope, 'dsseEnvelope')
}

/** Returns the statement in a DSSE envelope. Both alphabets of base64 are allowed. */
function statementOfEnvelope({ payloadType, payload }: SbomObject): SbomObject {
  if (payloadType !== statementPayload) throw new ContentError('UNSUPPORTED_FORM', `the envelope holds no ${statementPayload}`)
  if (typeof payload !== 'string' || /[^\w+/=-]/.test(payload)) throw new ContentError('UNREADABLE', 'the payload of the envelope is not base64')
  const statement = objectOfBytes(Buffer.from(payload, 'base64'))
  if (!statementTypes.has(statement['_type'])) throw new ContentError('UNSUPPORTED_FORM', 'the envelope holds no in-toto statement of version 0.1 or 1')
  return statement
}

function isEmptyList(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0
}

/** Throws ContentError WRONG_DIGEST unless a subject of the statement has one of the digests. */
function assertSubject(statement: SbomObject, digests: readonly Digest[]): void {
  const subjects = objectsAt(statement, 'subject').map((subject) => subject['digest'])
  const isThis = subjects.some((named) => isObject(named) && digests.some((digest) => named[algorithmOf(digest)] === hexOf(digest)))
  if (!isThis) throw new ContentError('WRONG_DIGEST', 'the statement is about another image: no subject has the digest of this image')
}

/** Returns the document in a statement. Older versions of cosign keep it in `Data`, as an object or a text. */
function predicateOf(statement: SbomObject, { digests, predicates, recognised }: WantedStatement, { isNamed = true } = {}): SbomObject {
  const type = shown(statement['predicateType'], 'it has no type')
  if (!predicates.test(type)) throw new ContentError('UNSUPPORTED_FORM', `the predicate is of another kind: ${type}`)
  recognised?.()
  if (isNamed) assertSubject(statement, digests)
  const predicate = objectOf(statement['predicate'], 'predicate')
  const data = predicate['Data']
  if (typeof data === 'string') return objectOfText(data)
  return isObject(data) ? data : predicate
}

/**
 * Returns the document itself, or what is in it if it is an in-toto statement, a DSSE envelope with one, or a bundle of sigstore. A statement must be about one of
 * the digests, and have one of the predicates. Signatures are not verified. Throws ContentError.
 */
export function unwrap(document: SbomObject, wanted: WantedStatement): SbomObject {
  if (isBundle(document)) return predicateOf(statementOfEnvelope(envelopeOfBundle(document)), wanted)
  if (document['payloadType'] !== undefined) return predicateOf(statementOfEnvelope(document), wanted)
  if (!statementTypes.has(document['_type'])) return document
  return predicateOf(document, wanted, { isNamed: wanted.mayLackSubject !== true || !isEmptyList(document['subject']) })
}
