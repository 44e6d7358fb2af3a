import { createPublicKey, generateKeyPairSync, randomBytes } from 'node:crypto'
import { beforeAll, describe, expect, test } from 'vitest'
import { create } from '@bufbuild/protobuf'
import { digestOf } from '../../../src/base/digest.ts'
import { PullPolicy_SignatureRequirementSchema } from '../../../src/gen/taproot/registry/v2/pull_policies_pb.ts'
import { signatureAnswer, signatureViolations, type Signature } from '../../../src/registry/policies/signature-rule.ts'
import { readSignature, readTrustedRoot, type HeldSignature, type SignatureContext } from '../../../src/registry/policies/signature.ts'
import { Authority, identity, newKeys, pemOf, signedBundle, signedPayload, type KeyPair, type LogEntry, type Signer, type Statement } from './signing.ts'

const subject = digestOf(Buffer.from('an image'))
const other = digestOf(Buffer.from('another image'))
const hourMs = 3_600_000

/** The two forms of signatures. */
const forms = {
  bundle: async (signer: Signer, statement: Statement): Promise<HeldSignature> => ({ form: 'bundle', bytes: await signedBundle(signer, statement) }),
  payload: async (signer: Signer, statement: Statement): Promise<HeldSignature> => {
    const { payload, annotations } = await signedPayload(signer, statement)
    return { form: 'payload', bytes: payload, annotations }
  },
} as const

const authority = new Authority()
let context: SignatureContext

beforeAll(async () => {
  context = { subject, trust: readTrustedRoot(JSON.stringify(await authority.trustedRoot())) }
})

const keysOf: Readonly<Record<string, { readonly keys: KeyPair; readonly hash?: string | null }>> = {
  'ECDSA P-256': { keys: newKeys() },
  'ECDSA P-384 with SHA-384': { keys: newKeys('P-384'), hash: 'sha384' },
  'ECDSA P-384 with SHA-256': { keys: newKeys('P-384') },
  RSA: { keys: generateKeyPairSync('rsa', { modulusLength: 2_048 }) },
  Ed25519: { keys: generateKeyPairSync('ed25519'), hash: null },
}

/** Returns an entry of a log with other fields. */
const changed =
  (fields: Partial<LogEntry>) =>
  (entry: LogEntry): LogEntry => ({ ...entry, ...fields })

describe.each(Object.entries(forms))('a signature as a %s', (_, signed) => {
  test.each(Object.entries(keysOf))('is by its key of %s, and by no other', async (_kind, signer) => {
    const signature = readSignature(await signed(signer, { digest: subject }), context)
    expect(signature).toMatchObject({ hasCertificate: false, signer: undefined, problem: '' })
    expect(signature.isSignedBy(pemOf(signer.keys))).toBe(true)
    for (const { keys } of Object.values(keysOf)) if (keys !== signer.keys) expect(signature.isSignedBy(pemOf(keys))).toBe(false)
  })

  test('of another image, or with another type, counts for nothing', async () => {
    const signer = { keys: newKeys() }
    const read = async (statement: Statement): Promise<Signature> => readSignature(await signed(signer, statement), context)
    await expect(read({ digest: other })).rejects.toThrow('it is of another image')
    await expect(read({ digest: subject, type: 'something else' })).rejects.toThrow(/its (payload is not that|statement is no signature) of an image/)
  })

  test('names whom its certificate names', async () => {
    const keys = newKeys()
    const signature = readSignature(await signed({ keys, keyless: { authority } }, { digest: subject }), context)
    expect(signature).toMatchObject({ hasCertificate: true, problem: '', signer: identity })
    // Without a trusted root nothing is said of the certificate.
    const unchecked = readSignature(await signed({ keys, keyless: { authority } }, { digest: subject }), { subject, trust: undefined })
    expect(unchecked).toMatchObject({ hasCertificate: true, problem: '', signer: undefined })
  })

  const faults: Readonly<Record<string, [Omit<NonNullable<Signer['keyless']>, 'authority'> & { readonly authority?: Authority }, RegExp]>> = {
    'of another authority': [{ authority: new Authority() }, /certificate/],
    'that had expired when the log got the signature': [{ loggedAfterMs: hourMs }, /not valid or expired/],
    'without an entry in a log': [{ change: () => undefined }, /timestamp/],
    'whose entry in the log has another time': [{ change: changed({ integratedTime: String(Math.floor(Date.now() / 1000) + 90) }) }, /inclusion promise/],
    'whose entry is in another log': [{ change: changed({ logId: { keyId: Buffer.alloc(32).toString('base64') } }) }, /inclusion promise/],
    'whose issuer is written with other bytes': [{ issuer: '\u00b1' }, /ASCII/],
  }
  test.each(Object.entries(faults))('has no signer with a certificate %s', async (_what, [keyless, problem]) => {
    const keys = newKeys()
    const signature = readSignature(await signed({ keys, keyless: { authority, ...keyless } }, { digest: subject }), context)
    expect(signature).toMatchObject({ hasCertificate: true, signer: undefined, problem: expect.stringMatching(problem) as unknown })
  })

  test('has no signer if its certificate, or its entry in a log, is of another signature', async () => {
    const [keys, keyless] = [newKeys(), { authority }]
    let entry: LogEntry | undefined
    await signed({ keys, keyless: { ...keyless, change: (one) => (entry = one) } }, { digest: other })
    const copied = await signed({ keys, keyless: { ...keyless, change: () => entry } }, { digest: subject })
    expect(readSignature(copied, context)).toMatchObject({ signer: undefined, problem: expect.stringMatching(/mismatch/) as unknown })
    const stolen = await signed({ keys, keyless }, { digest: subject })
    const forged = await signed({ keys: newKeys(), keyless }, { digest: subject })
    const mixed = mix(forged, stolen)
    expect(readSignature(mixed, context)).toMatchObject({ signer: undefined, problem: expect.stringMatching(/mismatch|verification failed/) as unknown })
  })
})

/** Returns a signature with the certificate and the log entry of another one. */
function mix(one: HeldSignature, from: HeldSignature): HeldSignature {
  if (one.form === 'payload' && from.form === 'payload') {
    const name = 'dev.cosignproject.cosign/signature'
    return { ...one, annotations: { ...from.annotations, [name]: one.annotations[name] } }
  }
  const [body, other_] = [one, from].map(({ bytes }) => JSON.parse(bytes.toString()) as Record<string, unknown>) // of signedBundle
  return { form: 'bundle', bytes: Buffer.from(JSON.stringify({ ...body, verificationMaterial: other_?.['verificationMaterial'] })) }
}

/** Returns a value in DER with this tag. */
function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const body = Buffer.concat(parts)
  const length = Buffer.alloc(4)
  length.writeUInt32BE(body.length)
  return Buffer.concat([Buffer.from([tag, 0x84]), length, body])
}

/** It has many empty values, each of which costs time. */
function largeCertificate(): Buffer {
  return der(0x30, der(0x30, Buffer.alloc(20_000, Buffer.from([5, 0]))))
}

/** A certificate whose key of RSA has an exponent as long as its modulus. A check of a signature takes 20 ms. */
function slowCertificate(): Buffer {
  const [modulus, exponent] = [randomBytes(384), randomBytes(383)]
  modulus.set([0x80], 0)
  modulus.set([1], 383)
  exponent.set([0x7f], 0)
  exponent.set([1], 382)
  const jwk = { kty: 'RSA', n: modulus.toString('base64url'), e: exponent.toString('base64url') }
  const key = createPublicKey({ key: jwk, format: 'jwk' }).export({ type: 'spki', format: 'der' })
  const hex = (text: string): Buffer => Buffer.from(text, 'hex')
  const algorithm = der(0x30, der(6, hex('2a864886f70d01010b')), der(5))
  const name = der(0x30, der(0x31, der(0x30, der(6, hex('550403')), der(0x0c, Buffer.from('slow')))))
  const validity = der(0x30, der(0x17, Buffer.from('000101000000Z')), der(0x17, Buffer.from('490101000000Z')))
  const content = der(0x30, der(0xa0, der(2, hex('02'))), der(2, hex('01')), algorithm, name, validity, name, key)
  return der(0x30, content, algorithm, der(3, Buffer.from([0]), randomBytes(384)))
}

describe('a signature that cannot be read', () => {
  const nested = Buffer.from(`${'['.repeat(1_000)}${']'.repeat(1_000)}`)
  const held: Readonly<Record<string, HeldSignature>> = {
    'no JSON': { form: 'bundle', bytes: Buffer.from('no JSON') },
    'no bundle': { form: 'bundle', bytes: Buffer.from('{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json"}') },
    'a list': { form: 'bundle', bytes: Buffer.from('[]') },
    'deeply nested': { form: 'bundle', bytes: nested },
    'no text': { form: 'payload', bytes: Buffer.from([0xff, 0xfe]), annotations: {} },
    'a deeply nested payload': { form: 'payload', bytes: nested, annotations: {} },
    'a payload without annotations': {
      form: 'payload',
      bytes: Buffer.from(JSON.stringify({ critical: { type: 'cosign container image signature', image: { 'docker-manifest-digest': subject } } })),
      annotations: {},
    },
  }
  test.each(Object.entries(held))('counts for nothing: %s', (_, one) => {
    expect(() => readSignature(one, context)).toThrow(Error)
  })

  test('counts for nothing: a payload with annotations of any kind', async () => {
    const { payload, annotations } = await signedPayload({ keys: newKeys(), keyless: { authority } }, { digest: subject })
    for (const name of Object.keys(annotations))
      for (const value of ['', 'x', '{}', '[]', 'null', '{"Payload":{}}', 7, null, {}]) {
        const read = (): Signature => readSignature({ form: 'payload', bytes: payload, annotations: { ...annotations, [name]: value } }, context)
        let signature: Signature | undefined
        try {
          signature = read()
        } catch {
          continue
        }
        expect(signature.signer).toBeUndefined()
      }
  })

  test.each([
    ['a large certificate', largeCertificate(), 'too large'],
    ['a certificate with a slow key', slowCertificate(), 'not supported'],
  ] as const)('counts for nothing: %s', async (_, certificate, reason) => {
    const bundle = JSON.parse((await signedBundle({ keys: newKeys() }, { digest: subject })).toString()) as Record<string, unknown> // of signedBundle
    const verificationMaterial = { certificate: { rawBytes: certificate.toString('base64') }, tlogEntries: [] }
    const bytes = Buffer.from(JSON.stringify({ ...bundle, verificationMaterial }))
    expect(() => readSignature({ form: 'bundle', bytes }, context)).toThrow(reason)
  })

  test('counts for nothing: a statement of another payload type', async () => {
    const bytes = await signedBundle({ keys: newKeys() }, { digest: subject, payloadType: 'text/plain' })
    expect(() => readSignature({ form: 'bundle', bytes }, context)).toThrow('its payload is no statement')
  })
})

describe('a requirement', () => {
  const violations = (fields: Parameters<typeof create<typeof PullPolicy_SignatureRequirementSchema>>[1]): readonly string[] =>
    signatureViolations(create(PullPolicy_SignatureRequirementSchema, fields), 'rule').map(({ field }) => field)

  test('takes public keys of the supported kinds only', () => {
    for (const { keys } of Object.values(keysOf)) expect(violations({ keys: [pemOf(keys)] })).toEqual([])
    const privateKey = newKeys().privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
    const weak = pemOf(generateKeyPairSync('rsa', { modulusLength: 1_024 }))
    for (const key of [privateKey, weak, pemOf(newKeys('secp256k1')), pemOf(newKeys('P-521')), 'no key', `${pemOf(newKeys())}${privateKey}`])
      expect(violations({ keys: [key] })).toEqual(['rule.keys'])
    expect(violations({})).toEqual(['rule'])
  })

  test('is not known for a certificate without a trusted root, and violated without any signature', async () => {
    const trustProblem = 'no trusted root is configured'
    const requirement = create(PullPolicy_SignatureRequirementSchema, {
      identities: [{ issuer: identity.issuer, subjectCondition: { case: 'subject', value: identity.subject } }],
    })
    const held = await forms.bundle({ keys: newKeys(), keyless: { authority } }, { digest: subject })
    const signatures = [readSignature(held, { subject, trust: undefined })]
    expect(signatureAnswer(requirement, { signatures, faults: [], gap: '', trustProblem })).toEqual({
      outcome: 'unknown',
      reason: 'requireSignature: not known, because no trusted root is configured',
    })
    expect(signatureAnswer(requirement, { signatures: [], faults: [], gap: '', trustProblem }).outcome).toBe('violated')
    const checked = [readSignature(held, context)]
    expect(signatureAnswer(requirement, { signatures: checked, faults: [], gap: '', trustProblem: '' }).outcome).toBe('passed')
  })

  test('compares issuers exactly, and subjects by the whole text', () => {
    const signature: Signature = { signer: identity, hasCertificate: true, problem: '', isSignedBy: () => false }
    const outcomeOf = (issuer: string, sort: 'subject' | 'subjectPattern', value: string): string => {
      const requirement = create(PullPolicy_SignatureRequirementSchema, { identities: [{ issuer, subjectCondition: { case: sort, value } }] })
      return signatureAnswer(requirement, { signatures: [signature], faults: [], gap: '', trustProblem: '' }).outcome
    }
    const { issuer } = identity
    for (const pattern of ['*', 'https://example.com/*', '*@main', 'https://*/build@main', 'https://example.com/build@main', '*h*t*t*p*@*'])
      expect([pattern, outcomeOf(issuer, 'subjectPattern', pattern)]).toEqual([pattern, 'passed'])
    for (const pattern of ['', 'example.com', '*example.com', 'https://example.com/build@mai', '.*', 'https://example.com/build@main*x', 'https?//*'])
      expect([pattern, outcomeOf(issuer, 'subjectPattern', pattern)]).toEqual([pattern, 'violated'])
    expect(outcomeOf(issuer, 'subject', identity.subject)).toBe('passed')
    for (const subject_ of ['*', `${identity.subject}x`, identity.subject.toUpperCase()]) expect(outcomeOf(issuer, 'subject', subject_)).toBe('violated')
    for (const wrong of ['', 'https://issuer.example/', 'https://*', 'issuer.example']) expect(outcomeOf(wrong, 'subjectPattern', '*')).toBe('violated')
  })

  test('compares a hostile subject with a hostile pattern in little time', () => {
    const signer = { issuer: identity.issuer, subject: 'a'.repeat(100_000) }
    const value = `${'*a'.repeat(500)}*b`
    const requirement = create(PullPolicy_SignatureRequirementSchema, {
      identities: [{ issuer: identity.issuer, subjectCondition: { case: 'subjectPattern', value } }],
    })
    const signature: Signature = { signer, hasCertificate: true, problem: '', isSignedBy: () => false }
    expect(signatureAnswer(requirement, { signatures: [signature], faults: [], gap: '', trustProblem: '' }).outcome).toBe('violated')
  })
})
