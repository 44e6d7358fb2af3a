import { createPublicKey, type KeyObject } from 'node:crypto'
import type { FieldViolation } from '../../base/errors.ts'
import type { PullPolicy_Identity, PullPolicy_SignatureRequirement } from '../../gen/taproot/registry/v2/pull_policies_pb.ts'

/** The predicate of statements by which cosign signs images. */
export const signPredicate = 'https://sigstore.dev/cosign/sign/v1'

/** Whom the valid certificate of a keyless signature names. */
export interface KeylessSigner {
  readonly issuer: string
  readonly subject: string
}

/** A signature that names the manifest, or an index that contains it. */
export interface Signature {
  readonly hasCertificate: boolean
  /** Undefined without a certificate, without a trusted root, and if the certificate or its log entry is not valid. */
  readonly signer: KeylessSigner | undefined
  /** Why the certificate is not valid; empty if it is, and if it was not checked. */
  readonly problem: string
  /** True if the private key of this public key in PEM form made the signature. */
  isSignedBy(pem: string): boolean
}

/** What is known of the signatures of a manifest. */
export interface SignatureFacts {
  readonly signatures: readonly Signature[]
  /** Why others count for nothing, for people. */
  readonly faults: readonly string[]
  /** Why not all are known; empty if they are. */
  readonly gap: string
  /** Why certificates could not be checked; empty if they could. */
  readonly trustProblem: string
}

/** What the rule says about a manifest, and why. */
interface SignatureAnswer {
  readonly outcome: 'passed' | 'violated' | 'unknown'
  readonly reason: string
}

const publicKeyPem = /^\s*-----BEGIN PUBLIC KEY-----[A-Za-z0-9+/=\s]+-----END PUBLIC KEY-----\s*$/
const curves: ReadonlySet<string | undefined> = new Set(['prime256v1', 'secp384r1'])

function isSupported({ asymmetricKeyType, asymmetricKeyDetails: { namedCurve, modulusLength = 0, publicExponent = 0n } = {} }: KeyObject): boolean {
  if (asymmetricKeyType === 'rsa') return modulusLength >= 2_048 && modulusLength <= 8_192 && publicExponent < 2n ** 32n
  return asymmetricKeyType === 'ed25519' || (asymmetricKeyType === 'ec' && curves.has(namedCurve))
}

function isPublicKey(pem: string): boolean {
  // Node would also take a private key, and then the store would hold it.
  if (!publicKeyPem.test(pem)) return false
  try {
    return isSupported(createPublicKey(pem))
  } catch {
    return false
  }
}

/** Returns what is wrong with a requirement. `field` is the path of the field with it. */
export function signatureViolations({ keys, identities }: PullPolicy_SignatureRequirement, field: string): FieldViolation[] {
  if (keys.length === 0 && identities.length === 0) return [{ field, description: 'needs a key or an identity' }]
  const description = 'must be a public key in PEM form: ECDSA P-256 or P-384, RSA of 2048 to 8192 bits, or Ed25519'
  return keys.every(isPublicKey) ? [] : [{ field: `${field}.keys`, description }]
}

/** True if the whole text matches the pattern, in which `*` stands for any characters. Takes time in proportion to the lengths. */
function matchesPattern(pattern: string, text: string): boolean {
  const [first = '', ...rest] = pattern.split('*')
  const last = rest.pop()
  if (last === undefined) return text === pattern
  const end = text.length - last.length
  let at = first.length
  if (at > end || !text.startsWith(first) || !text.endsWith(last)) return false
  for (const part of rest) {
    const found = text.indexOf(part, at)
    if (found < 0 || found + part.length > end) return false
    at = found + part.length
  }
  return true
}

function isIdentity({ issuer, subjectCondition: { case: sort, value } }: PullPolicy_Identity, signer: KeylessSigner): boolean {
  if (issuer === '' || signer.issuer !== issuer) return false
  // A later version may have written a condition that this one does not know.
  if (sort === undefined) return false
  return sort === 'subject' ? signer.subject === value : matchesPattern(value, signer.subject)
}

/** Returns why signatures that are known count for nothing. */
function reasonOf({ signatures, faults }: SignatureFacts, { identities }: PullPolicy_SignatureRequirement): string {
  const count = signatures.length + faults.length
  if (count === 0) return 'there is no signature'
  const problems = signatures.map(({ signer, problem }) => {
    if (problem !== '') return problem
    return signer !== undefined && identities.length > 0 ? `it is by ${signer.subject} of ${signer.issuer}` : 'it is by another key'
  })
  return `none of ${count} ${count === 1 ? 'signature' : 'signatures'} counts: ${[...problems, ...faults][0] ?? ''}`
}

/** Returns what the rule says. Nothing is known without facts: they could not be read. */
export function signatureAnswer(requirement: PullPolicy_SignatureRequirement, facts: SignatureFacts | undefined): SignatureAnswer {
  const rule = 'requireSignature'
  if (facts === undefined) return { outcome: 'unknown', reason: `${rule}: not known, because signatures were not read` }
  const { keys, identities } = requirement
  const { signatures, gap, trustProblem } = facts
  const isGood = ({ signer, isSignedBy }: Signature): boolean => {
    return (signer !== undefined && identities.some((identity) => isIdentity(identity, signer))) || keys.some((key) => isSignedBy(key))
  }
  if (signatures.some(isGood)) return { outcome: 'passed', reason: '' }
  if (gap !== '') return { outcome: 'unknown', reason: `${rule}: not known, because ${gap}` }
  if (identities.length > 0 && trustProblem !== '' && signatures.some(({ hasCertificate }) => hasCertificate))
    return { outcome: 'unknown', reason: `${rule}: not known, because ${trustProblem}` }
  return { outcome: 'violated', reason: `${rule}: ${reasonOf(facts, requirement)}` }
}
